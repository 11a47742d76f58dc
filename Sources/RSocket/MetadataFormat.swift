/// The format in which request metadata names a stream; a client chooses it once, in SETUP.
public enum MetadataFormat: UInt8, Sendable, CaseIterable {
  /// Entries of any MIME type, one after the other, including a routing entry.
  case composite
  /// Tags, each a byte count and text; the first one is the stream's name.
  case routing
  /// The whole metadata is the stream's name.
  case text

  /// Returns `nil` for a type that streamd does not support. ASCII case is ignored.
  public init?(mimeType: String) {
    let wanted = mimeType.lowercased()
    guard let format = MetadataFormat.allCases.first(where: { $0.mimeType == wanted }) else { return nil }
    self = format
  }

  /// The MIME type in SETUP.
  public var mimeType: String {
    switch self {
    case .composite: "message/x.rsocket.composite-metadata.v0"
    case .routing: "message/x.rsocket.routing.v0"
    case .text: "text/plain"
    }
  }

  /// Returns the stream's name from a request's metadata.
  ///
  /// - Throws: ``RoutingError`` if there is none, it is empty, or the metadata is malformed.
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

  /// Returns metadata that names a stream: the inverse of ``route(in:)``.
  ///
  /// - Parameter publisher: an additional entry; only `.composite` can carry it, the others omit it.
  /// - Throws: ``RoutingError`` for a name of more than 255 bytes, which does not fit into a tag (`.text` accepts any).
  public func metadata(route: String, publisher: PublisherEntry? = nil) throws(RoutingError) -> [UInt8] {
    let name = [UInt8](route.utf8)
    guard self != .text else { return name }
    guard name.count <= 255 else { throw RoutingError("a name of \(name.count) bytes is too long: 255 at most") }
    let tag = [UInt8(name.count)] + name
    guard self == .composite else { return tag }
    return [0x80 | Self.routingID, 0] + [UInt8(tag.count >> 8), UInt8(tag.count & 0xff)] + tag
      + (publisher?.compositeEntry ?? [])
  }

  /// Returns the publisher that a request's metadata names; nil if there is none, and for every format but
  /// `.composite`.
  ///
  /// - Throws: ``RoutingError`` for a malformed entry.
  public func publisher(in metadata: [UInt8]?) throws(RoutingError) -> PublisherEntry? {
    guard self == .composite, let metadata,
      let entry = try Self.entry(PublisherEntry.mimeType, nil, in: metadata[...])
    else { return nil }
    return try PublisherEntry(entry)
  }

  /// The ID of the routing type among the well-known MIME types. Source: RSocket extension "Well-known MIME Types".
  private static let routingID: UInt8 = 0x7e

  private static func firstTag(in tags: ArraySlice<UInt8>) throws(RoutingError) -> ArraySlice<UInt8> {
    guard let count = tags.first else { throw RoutingError("the routing metadata has no tag") }
    let name = tags.dropFirst().prefix(Int(count))
    guard name.count == Int(count) else { throw RoutingError("the routing metadata ends inside its first tag") }
    return name
  }

  /// Returns the content of an entry. Its layout: a byte with the top bit and a well-known ID, or without the top bit
  /// and one less than the length of the MIME type that follows; u24 length; content. Source: RSocket extension
  /// "Composite Metadata".
  ///
  /// - Parameter knownID: the well-known ID of `mimeType`, if it has one.
  /// - Returns: the content of the first entry of that type; nil for none.
  static func entry(
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

/// The error for metadata that cannot be read, or names no stream, or for a name that metadata cannot carry.
public struct RoutingError: Error, Equatable, Sendable, CustomStringConvertible {
  /// One sentence, suitable for an ERROR frame.
  public let message: String

  init(_ message: String) { self.message = message }

  /// The message.
  public var description: String { message }
}
