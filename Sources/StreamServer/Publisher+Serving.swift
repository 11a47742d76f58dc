import Reactive
import StreamRuntime

extension Publisher where Output == [UInt8] {
  /// Serves this publisher to other processes: a stream on a Unix socket, each value an event. `StreamClient` has the
  /// publisher of the other end; any RSocket client can read the stream.
  ///
  /// The publisher has one subscription for all clients, from the first client until the last one has ended. Demand:
  /// the credit of the clients crosses the socket. One value at a time is requested while any client has credit for it.
  /// For several streams on one socket, or other limits, create a ``StreamServer``.
  ///
  /// - Parameters:
  ///   - name: The name of the stream.
  ///   - path: The path of the socket, to which only this user can connect. It is removed at the end.
  ///   - replay: Events that a new subscription receives first, unless it sets a position.
  ///   - overflow: What happens to unread events when the buffer is full.
  /// - Returns: A cancellable that ends the stream and closes the socket when it is cancelled or released.
  /// - Throws: ``StreamServer/AddStreamError`` for a reserved name, `SystemError` for a socket that cannot be created.
  public func serve(
    as name: String, at path: String, replay: Int = 1, overflow: OverflowPolicy = .drop
  ) throws -> AnyCancellable {
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let configuration = StreamConfiguration(
      name: name, type: "application/octet-stream", replay: replay, start: .whileSubscribed(linger: .zero),
      overflow: overflow)
    try server.add(configuration, source: map { [$0] }.mapError { StreamFailure("\($0)") })
    let socket = try UnixSocket.listen(at: path, mode: 0o600)
    let file = UnixSocket.File(at: path)
    try server.start()
    server.listen(on: socket)
    return AnyCancellable {
      file?.remove()
      server.stop {}
    }
  }
}

extension Publisher where Output: LosslessStringConvertible {
  /// Serves this publisher to other processes, each value as its text; see the function for bytes.
  public func serve(
    as name: String, at path: String, replay: Int = 1, overflow: OverflowPolicy = .drop
  ) throws -> AnyCancellable {
    try map(own { Array("\($0)".utf8) }).serve(as: name, at: path, replay: replay, overflow: overflow)
  }
}
