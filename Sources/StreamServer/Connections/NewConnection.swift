import StreamRuntime

/// A connection before its first byte, which selects the protocol: the connection that continues takes its place.
final class NewConnection: Connection {
  override func process(_ bytes: UnsafeRawBufferPointer, until deadline: UInt64) -> Int {
    let isHTTP = HTTPConnection.speaks(unsafe bytes[0])
    worker.replace(self, input: unsafe Array(bytes)) {
      isHTTP
        ? HTTPConnection($0, identity, share, worker: worker) : RSocketConnection($0, identity, share, worker: worker)
    }
    return bytes.count
  }

  /// A browser opens connections that it may not use.
  override func timeIsOver() {
    worker.trace(identity, "sent nothing within the handshake timeout")
    close()
  }

  override func save() -> SavedConnection? {
    guard phase == .open else { return nil }
    let (input, unsent) = savedBytes
    let saved = SavedConnection(
      descriptor: socket.raw, number: identity.number, silence: silence, input: input, unsent: unsent)
    leaveSocket()
    return saved
  }

  override func restore(_ saved: SavedConnection) {
    restore(silence: saved.silence, input: saved.input, unsent: saved.unsent)
  }
}
