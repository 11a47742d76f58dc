// `SubscribeOptions` and `LagPolicy` are part of what a program says of a subscription.
@_exported import StreamProtocol
