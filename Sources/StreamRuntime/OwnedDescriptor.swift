import Glibc

/// Owns one descriptor; closed exactly once, when its owner goes away.
public struct OwnedDescriptor: ~Copyable, Sendable {
  /// The number, for as long as the owner lives.
  public let raw: CInt

  /// Takes over `raw`: nobody else may close it.
  public init(_ raw: CInt) {
    self.raw = raw
  }

  /// Gives the number away; whoever takes it closes it.
  public consuming func release() -> CInt {
    let raw = raw
    discard self
    return raw
  }

  deinit { close(raw) }
}
