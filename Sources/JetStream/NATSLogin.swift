import CTLS
import Events

/// How a client introduces itself to a server, and proves its identity.
struct NATSLogin {
  private let options: JetStreamOptions

  init(_ options: JetStreamOptions) { self.options = options }

  /// The line with which a connection begins.
  /// - Parameter information: from the server.
  func line(answering information: NATSInformation, isSecure: Bool) throws(NATSFailure) -> [UInt8] {
    var members = [
      #""verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1,"lang":"swift","name":"streamd""#,
      #""tls_required":\#(isSecure),"version":\#(JSONScalar.quoted(options.version))"#,
    ]
    func add(_ name: String, _ value: String) { members.append("\"\(name)\":\(JSONScalar.quoted(value))") }
    func sign(with seed: String) throws(NATSFailure) {
      guard let key = NATSKey(userSeed: seed) else {
        throw NATSFailure(reason: "the seed of the user's key is malformed")
      }
      guard let nonce = information.nonce else { return }  // the server asks for no proof
      guard let signature = key.signature(of: Array(nonce.utf8)) else {
        throw NATSFailure(reason: "OpenSSL does not sign with Ed25519")
      }
      add("sig", Base64.encodedForURL(signature))
    }
    switch options.credentials {
    case .none: break
    case .password(let user, let password):
      add("user", user)
      add("pass", password)
    case .token(let token): add("auth_token", token)
    case .nkey(let publicKey, let seed):
      add("nkey", publicKey)
      try sign(with: seed)
    case .credentials(let content):
      guard let token = Self.section("BEGIN NATS USER JWT", of: content),
        let seed = Self.section("BEGIN USER NKEY SEED", of: content)
      else { throw NATSFailure(reason: "the credentials have no user's JWT, or no seed") }
      add("jwt", token)
      try sign(with: seed)
    }
    return Array("CONNECT {\(members.joined(separator: ","))}\r\n".utf8)
  }

  /// The line after the title line, which begins with dashes.
  private static func section(_ title: String, of content: String) -> String? {
    let lines = content.split(whereSeparator: \.isNewline)
    return zip(lines, lines.dropFirst()).first { $0.0.hasPrefix("---") && $0.0.contains(title) }.map { String($0.1) }
  }
}

/// A key of NATS: nkeys, `strkey.go`; signs with Ed25519.
struct NATSKey {
  /// The private key.
  private let bytes: [UInt8]

  /// - Parameter seed: "SU" and 56 letters and digits: base32 of the type, the private key and a checksum.
  init?(userSeed seed: String) {
    guard let all = Base32.decoded(seed.utf8), all.count == 36,
      Self.checksum(all.dropLast(2)) == UInt16(all[34]) | UInt16(all[35]) << 8,
      all[0] == Self.seed | Self.user >> 5, all[1] == Self.user << 3
    else { return nil }
    bytes = Array(all[2..<34])
  }

  /// The type's letters, 5 bits each.
  private static let seed: UInt8 = 18 << 3
  private static let user: UInt8 = 20 << 3

  /// - Returns: the signature, 64 bytes; nil if OpenSSL fails.
  func signature(of message: [UInt8]) -> [UInt8]? {
    var signature = [UInt8](repeating: 0, count: 64)
    return unsafe tls_sign(bytes, message, message.count, &signature) ? signature : nil
  }

  /// CRC-16/XMODEM.
  private static func checksum(_ bytes: ArraySlice<UInt8>) -> UInt16 {
    bytes.reduce(0) { checksum, byte in
      (0..<8).reduce(checksum ^ UInt16(byte) << 8) { rest, _ in rest & 0x8000 == 0 ? rest << 1 : rest << 1 ^ 0x1021 }
    }
  }
}
