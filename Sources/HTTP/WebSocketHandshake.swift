/// The opening handshake: here the server's part, for a client see ``WebSocketOffer``. Source: RFC 6455, section 4.2.
public enum WebSocketHandshake {
  /// The version that is supported, for the field Sec-WebSocket-Version of a response with 426.
  public static let version = "13"
  private static let identifier = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

  /// Whether a request asks for an upgrade to WebSocket. HTTP/1.0 has no upgrades.
  public static func isRequested(by head: RequestHead) -> Bool {
    head.version == .http11 && head.contains("websocket", in: "Upgrade") && head.contains("upgrade", in: "Connection")
  }

  /// Checks a request to change to WebSocket.
  ///
  /// - Returns: the value of Sec-WebSocket-Accept for a response with 101, which also needs `Upgrade: websocket` and
  ///   `Connection: Upgrade`. Extensions are not accepted: the response has no field for them.
  /// - Throws: 405, 400, or 426 if the request does not ask for version 13 of WebSocket.
  public static func accept(_ head: RequestHead) throws(Rejection) -> String {
    guard head.method == .get else { throw Rejection(.methodNotAllowed, "a WebSocket is opened with GET") }
    guard isRequested(by: head) else {
      throw Rejection(.upgradeRequired, "the request does not ask for an upgrade to WebSocket")
    }
    guard head["Sec-WebSocket-Version"] == version else {
      throw Rejection(.upgradeRequired, "version \(version) of WebSocket is supported")
    }
    guard head.framing.isEmpty else {
      throw .malformed("a request to open a WebSocket has a body")
    }
    guard let key = head["Sec-WebSocket-Key"], isKey(key) else {
      throw .malformed("Sec-WebSocket-Key is not the base64 form of 16 bytes")
    }
    return accept(key: key)
  }

  /// Whether the client offers this subprotocol, which the response may then name. A browser takes no other answer to an
  /// offer.
  public static func isOffered(_ subprotocol: String, by head: RequestHead) -> Bool {
    head["Sec-WebSocket-Protocol"]?.elements(separatedBy: .comma).contains { $0 == subprotocol } == true
  }

  /// Returns the value of Sec-WebSocket-Accept for that of Sec-WebSocket-Key: the base64 form of the SHA-1 digest of the key
  /// and the protocol's identifier.
  public static func accept(key: String) -> String {
    base64(sha1(Array((key + identifier).utf8)))
  }

  /// 16 bytes are 22 digits, of which the last one has four zero bits, and padding.
  private static func isKey(_ key: String) -> Bool {
    let digits = key.utf8.dropLast(2)
    guard key.utf8.count == 24, key.hasSuffix("=="), let last = digits.last else { return false }
    return digits.allSatisfy {
      switch $0 {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "+"), .slash:
        true
      default: false
      }
    } && "AQgw".utf8.contains(last)
  }
}

/// Returns the digest, 20 bytes. The handshake is its only use: SHA-1 does not protect against forgery. Source: FIPS
/// 180-4.
func sha1(_ message: [UInt8]) -> [UInt8] {
  var padded = message
  padded.append(0x80)
  padded += [UInt8](repeating: 0, count: (119 - message.count % 64) % 64)
  let bitCount = message.count * 8
  for shift in stride(from: 56, through: 0, by: -8) { padded.append(UInt8(truncatingIfNeeded: bitCount >> shift)) }
  var state: [UInt32] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0]
  for block in stride(from: 0, to: padded.count, by: 64) {
    var words = [UInt32](repeating: 0, count: 80)
    for index in 0..<64 { words[index / 4] = words[index / 4] << 8 | UInt32(padded[block + index]) }
    for index in 16..<80 {
      words[index] = rotated(words[index - 3] ^ words[index - 8] ^ words[index - 14] ^ words[index - 16], by: 1)
    }
    var (a, b, c, d, e) = (state[0], state[1], state[2], state[3], state[4])
    for index in 0..<80 {
      let (mix, constant): (UInt32, UInt32)
      switch index {
      case 0..<20: (mix, constant) = (b & c | ~b & d, 0x5a82_7999)
      case 20..<40: (mix, constant) = (b ^ c ^ d, 0x6ed9_eba1)
      case 40..<60: (mix, constant) = (b & c | b & d | c & d, 0x8f1b_bcdc)
      default: (mix, constant) = (b ^ c ^ d, 0xca62_c1d6)
      }
      let sum = rotated(a, by: 5) &+ mix &+ e &+ constant &+ words[index]
      (a, b, c, d, e) = (sum, a, rotated(b, by: 30), c, d)
    }
    for (index, value) in [a, b, c, d, e].enumerated() { state[index] &+= value }
  }
  return state.flatMap { word in [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: word >> $0) } }
}

private func rotated(_ word: UInt32, by count: UInt32) -> UInt32 { word << count | word >> (32 - count) }
