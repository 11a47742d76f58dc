import CChecksum
import Glibc
import TaggedFields

/// An entry of a shard's log.
///
/// Each entry has the checksum of the entry before it, valid or void. A wrong checksum makes an entry void, for all
/// hosts alike: a former leader wrote it without knowledge of the entry before it.
struct ShardEntry: Equatable {
  enum Content: Equatable {
    /// The host leads the shard from this entry on. Its term is the entry's sequence number.
    case claim(Claim)
    /// A record, or a part of one.
    case part(Part)
  }

  struct Claim: Equatable {
    var host: HostID
    /// The head of each stream, in the format of the layer above.
    var heads: [UInt8]
  }

  struct Part: Equatable {
    /// The sequence number of the claim.
    var term: UInt64 = 0
    /// 0 for the first part of a record.
    var index: UInt32 = 0
    var isLast = false
    var bytes: [UInt8] = []
  }

  /// Rises when the log begins anew, because it has lost entries that hosts may have read.
  var epoch: UInt64
  /// The checksum of the entry before; 0 if there is none.
  var former: UInt32
  var content: Content
}

extension ShardEntry {
  enum DecodingError: Error, Equatable {
    /// No host has written the entry: it is void.
    case noEntry
    /// A later version has written the entry: its effect on later entries is unknown.
    case unknownFormat
  }

  /// "sfl" and the version of the format.
  private static let magic: [UInt8] = [0x73, 0x66, 0x6c]
  private static let version: UInt8 = 1

  var bytes: [UInt8] { Self.magic + [Self.version] + RecordFields.bytes(of: self) }

  init(_ bytes: [UInt8]) throws(DecodingError) {
    guard bytes.starts(with: Self.magic), bytes.count > Self.magic.count else { throw .noEntry }
    guard bytes[Self.magic.count] == Self.version else { throw .unknownFormat }
    do throws(Malformed) {
      self = try RecordFields.read(ShardEntry.self, from: bytes.dropFirst(Self.magic.count + 1))
    } catch {
      throw .unknownFormat
    }
  }

  /// Whether two entries are the same. Arrays compare one byte at a time, which takes ten times as long.
  static func areEqual(_ one: [UInt8], _ other: [UInt8]) -> Bool {
    unsafe one.count == other.count
      && one.withUnsafeBytes { one in
        unsafe other.withUnsafeBytes { other in
          unsafe one.isEmpty || memcmp(one.baseAddress!, other.baseAddress!, one.count) == 0
        }
      }
  }

  /// The checksum that the next entry has.
  static func checksum(of bytes: [UInt8]) -> UInt32 {
    unsafe bytes.withUnsafeBytes { unsafe crc32c($0.baseAddress, $0.count) }
  }
}

extension ShardEntry: TaggedRecord {
  init() { self.init(epoch: 0, former: 0, content: .part(Part())) }

  mutating func visit(_ fields: inout RecordFields) throws(Malformed) {
    var (host, heads, part): ([UInt8], [UInt8], Part)
    switch content {
    case .claim(let claim): (host, heads, part) = (claim.host.bytes, claim.heads, Part())
    case .part(let content): (host, heads, part) = ([], [], content)
    }
    try fields.field(1, &epoch)
    try fields.field(2, &former)
    try fields.field(3, &host)
    try fields.field(4, &heads)
    try fields.field(5, &part.term)
    try fields.field(6, &part.index)
    try fields.field(7, &part.isLast)
    try fields.field(8, &part.bytes)
    guard fields.isReading else { return }
    if part.term > 0 {
      content = .part(part)
    } else {
      guard let host = HostID(host) else { throw Malformed(reason: "its claim is of no host") }
      content = .claim(Claim(host: host, heads: heads))
    }
  }
}
