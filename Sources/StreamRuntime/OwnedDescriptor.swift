import Glibc

/// Owns one descriptor and closes it exactly once, at the end of its own lifetime, without a wait for what a peer has sent.
public struct OwnedDescriptor: ~Copyable, Sendable {
  /// The descriptor, valid during the value's lifetime.
  public let raw: CInt

  /// Takes ownership of `raw`: no other code may close it.
  public init(_ raw: CInt) {
    self.raw = raw
  }

  /// Releases ownership; the caller must close the descriptor.
  public consuming func release() -> CInt {
    let raw = raw
    discard self
    return raw
  }

  deinit { LocalSocket.close(raw) }
}
