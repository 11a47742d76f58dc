/// A process that is a member of a fleet. A restarted daemon has another id.
package struct HostID: Hashable, Sendable {
  /// 16 random bytes.
  package let bytes: [UInt8]

  /// - Returns: nil unless there are 16 bytes.
  package init?(_ bytes: [UInt8]) {
    guard bytes.count == 16 else { return nil }
    self.bytes = bytes
  }

  /// A new random id.
  package static func random() -> HostID {
    var generator = SystemRandomNumberGenerator()
    return HostID(uncheckedBytes: (0..<16).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
  }

  private init(uncheckedBytes: [UInt8]) { bytes = uncheckedBytes }
}

extension HostID: CustomStringConvertible {
  /// 32 hexadecimal digits.
  package var description: String {
    bytes.map { byte in (byte < 16 ? "0" : "") + String(byte, radix: 16) }.joined()
  }
}
