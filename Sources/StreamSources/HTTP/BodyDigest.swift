/// A 64-bit hash that detects a changed page. Equal bytes have equal digests; different bytes collide with probability
/// 2^-64, unless an author makes them collide, which affects only the author's own stream. Stable across processes, so
/// it can be saved.
struct BodyDigest: Equatable, Sendable {
  let value: UInt64

  init(value: UInt64) { self.value = value }

  /// The digest of texts, which differs from that of the same text in other parts.
  init(parts: [String]) { self.init(Array(parts.map { "\($0.utf8.count) \($0)" }.joined().utf8)) }

  /// - Complexity: O(n), 8 bytes at a time: a few milliseconds for 8 MiB.
  init(_ bytes: [UInt8]) {
    value = unsafe bytes.withUnsafeBytes { bytes in
      var hash = 0xCBF2_9CE4_8422_2325 ^ UInt64(bytes.count)
      func mix(_ word: UInt64) {
        // Both halves of the full product: each bit of the word affects each bit of the hash. Source: wyhash.
        let product = (hash ^ word ^ 0xA076_1D64_78BD_642F).multipliedFullWidth(by: 0xE703_7ED1_A0B4_28DB)
        hash = (product.high ^ product.low) &+ 0x9E37_79B9_7F4A_7C15
      }
      let end = bytes.count & ~7
      for offset in stride(from: 0, to: end, by: 8) {
        unsafe mix(UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self)))
      }
      var last: UInt64 = 0
      for offset in end..<bytes.count { last = unsafe last << 8 | UInt64(bytes[offset]) }
      mix(last)
      return hash
    }
  }
}
