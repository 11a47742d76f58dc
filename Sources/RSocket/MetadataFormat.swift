/// How request metadata says which stream is meant; a client chooses once, in SETUP.
public enum MetadataFormat: UInt8, Sendable, CaseIterable {
  /// Entries of any MIME type one after the other, a routing entry among them.
  case composite
  /// Tags, each a byte count and text; the first one is the name.
  case routing
  /// The whole metadata is the name.
  case text

  /// `nil` for a type that streamd does not read. ASCII case does not matter.
  public init?(mimeType: String) {
    let wanted = mimeType.lowercased()
    guard let format = MetadataFormat.allCases.first(where: { $0.mimeType == wanted }) else { return nil }
    self = format
  }

  /// What SETUP carries.
  public var mimeType: String {
    switch self {
    case .composite: "message/x.rsocket.composite-metadata.v0"
    case .routing: "message/x.rsocket.routing.v0"
    case .text: "text/plain"
    }
  }

  /// The stream's name in a request's metadata.
  ///
  /// - Throws: ``RoutingError`` when there is none, when it is empty, or when the metadata cannot be read.
  public func route(in metadata: [UInt8]?) throws(RoutingError) -> String {
    guard let metadata else { throw RoutingError("the request has no metadata to name a stream") }
    let name: ArraySlice<UInt8>
    switch self {
    case .composite:
      guard let entry = try Self.entry(MetadataFormat.routing.mimeType, Self.routingID, in: metadata[...]) else {
        throw RoutingError("the composite metadata has no routing entry")
      }
      name = try Self.firstTag(in: entry)
    case .routing: name = try Self.firstTag(in: metadata[...])
    case .text: name = metadata[...]
    }
    guard !name.isEmpty else { throw RoutingError("the stream's name is empty") }
    guard let text = String(validating: name, as: UTF8.self) else {
      throw RoutingError("the stream's name is not UTF-8")
    }
    return text
  }

  /// Metadata that names a stream: the inverse of ``route(in:)``.
  ///
  /// - Parameter publisher: said besides; only `.composite` has a place for it, the others leave it out.
  /// - Throws: ``RoutingError`` for a name of more than 255 bytes, which a tag cannot hold (`.text` takes any).
  public func metadata(route: String, publisher: PublisherEntry? = nil) throws(RoutingError) -> [UInt8] {
    let name = [UInt8](route.utf8)
    guard self != .text else { return name }
    guard name.count <= 255 else { throw RoutingError("a name of \(name.count) bytes is too long: 255 at most") }
    let tag = [UInt8(name.count)] + name
    guard self == .composite else { return tag }
    return [0x80 | Self.routingID, 0] + [UInt8(tag.count >> 8), UInt8(tag.count & 0xff)] + tag
      + (publisher?.compositeEntry ?? [])
  }

  /// The publisher that a request's metadata names; nil without one, and in every format but `.composite`.
  ///
  /// - Throws: ``RoutingError`` for an entry that cannot be read.
  public func publisher(in metadata: [UInt8]?) throws(RoutingError) -> PublisherEntry? {
    guard self == .composite, let metadata,
      let entry = try Self.entry(PublisherEntry.mimeType, nil, in: metadata[...])
    else { return nil }
    return try PublisherEntry(entry)
  }

  /// Of the routing type among the well-known MIME types. Source: RSocket extension "Well-known MIME Types".
  private static let routingID: UInt8 = 0x7e

  private static func firstTag(in tags: ArraySlice<UInt8>) throws(RoutingError) -> ArraySlice<UInt8> {
    guard let count = tags.first else { throw RoutingError("the routing metadata has no tag") }
    let name = tags.dropFirst().prefix(Int(count))
    guard name.count == Int(count) else { throw RoutingError("the routing metadata ends inside its first tag") }
    return name
  }

  /// An entry: a byte with the top bit and a well-known ID, or without it and one less than the length of the MIME type
  /// that follows; u24 length; content. Source: RSocket extension "Composite Metadata".
  ///
  /// - Parameter knownID: the well-known ID of `mimeType`, if it has one.
  /// - Returns: the first entry of that type; nil for none.
  private static func entry(
    _ mimeType: String, _ knownID: UInt8?, in metadata: ArraySlice<UInt8>
  ) throws(RoutingError) -> ArraySlice<UInt8>? {
    var rest = metadata
    while let head = rest.popFirst() {
      var isWanted = knownID.map { head == 0x80 | $0 } ?? false
      if head & 0x80 == 0 {
        isWanted = rest.prefix(Int(head) + 1).elementsEqual(mimeType.utf8)
        rest = rest.dropFirst(Int(head) + 1)
      }
      guard rest.count >= 3 else { throw RoutingError("the composite metadata ends inside an entry") }
      let count = rest.prefix(3).reduce(0) { $0 << 8 | Int($1) }
      rest = rest.dropFirst(3)
      guard rest.count >= count else { throw RoutingError("the composite metadata ends inside an entry") }
      if isWanted { return rest.prefix(count) }
      rest = rest.dropFirst(count)
    }
    return nil
  }
}

/// Request metadata that names no stream, or a name that metadata cannot carry.
public struct RoutingError: Error, Equatable, Sendable, CustomStringConvertible {
  /// One sentence, fit for an ERROR frame.
  public let message: String

  init(_ message: String) { self.message = message }

  /// The message.
  public var description: String { message }
}
