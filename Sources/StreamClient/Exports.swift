// Re-exported, because `SubscribeOptions`, `EventFilter` and `LagPolicy` are part of this module's interface.
@_exported import StreamProtocol
