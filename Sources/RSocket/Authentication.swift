// A client's token in the metadata of its SETUP: an entry of the composite metadata. Source: RSocket extension
// "Authentication".

extension MetadataFormat {
  /// The MIME type of the entry, and its ID among the well-known ones.
  private static let authenticationType = "message/x.rsocket.authentication.v0"
  private static let authenticationID: UInt8 = 0x7c
  /// The well-known authentication types, with the top bit.
  private static let (simple, bearer) = (0x80 as UInt8, 0x81 as UInt8)

  /// Returns the token in the metadata of a SETUP: all bytes after the type; nil without an entry, and for every format
  /// but `.composite`.
  ///
  /// - Throws: ``RoutingError`` for malformed metadata, and for another kind of authentication.
  public func bearerToken(in metadata: [UInt8]?) throws(RoutingError) -> ArraySlice<UInt8>? {
    guard self == .composite, let metadata,
      let entry = try Self.entry(Self.authenticationType, Self.authenticationID, in: metadata[...])
    else { return nil }
    switch entry.first {
    case Self.bearer: return entry.dropFirst()
    case nil: throw RoutingError("the authentication entry is empty")
    case Self.simple: throw RoutingError("a user name and password are not supported: send a bearer token")
    case _: throw RoutingError("the type of the authentication is not known: send a bearer token")
    }
  }

  /// Returns metadata of a SETUP with composite metadata: the inverse of ``bearerToken(in:)``.
  /// - Parameter token: less than 16 MiB.
  public static func metadata(bearerToken token: some Collection<UInt8>) -> [UInt8] {
    let count = token.count + 1
    return [0x80 | authenticationID] + [16, 8, 0].map { UInt8(truncatingIfNeeded: count >> $0) } + [bearer] + token
  }
}
