import Glibc

/// Identifies a boot of the machine. All writes of the same boot are present, even if their process was killed; after a
/// reboot, writes that had not reached the disk are missing.
public struct BootID: Equatable, Sendable {
  let high, low: UInt64

  /// An unknown boot: a log with it may have been written before the present boot.
  static let unknown = BootID(high: 0, low: 0)

  init(high: UInt64, low: UInt64) {
    (self.high, self.low) = (high, low)
  }

  /// - Parameter text: 32 hexadecimal digits, with or without hyphens.
  public init?(_ text: some StringProtocol) {
    let digits = String(text.filter { $0 != "-" && !$0.isWhitespace })
    guard digits.utf8.count == 32, let high = UInt64(digits.prefix(16), radix: 16),
      let low = UInt64(digits.suffix(16), radix: 16)
    else { return nil }
    self.init(high: high, low: low)
  }

  /// The kernel's boot id; nil where it is not accessible.
  public static func current() -> BootID? {
    let file = unsafe open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return nil }
    defer { close(file) }
    var bytes = [UInt8](repeating: 0, count: 64)
    let count = unsafe read(file, &bytes, bytes.count)
    return count > 0 ? BootID(String(decoding: bytes[..<count], as: UTF8.self)) : nil
  }
}
