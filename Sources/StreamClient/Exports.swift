// Re-exported, because `SubscribeOptions` and `LagPolicy` are part of this module's interface.
@_exported import StreamProtocol
