/// The client's part of the opening handshake. Source: RFC 6455, section 4.1; RFC 7692, section 7.1.
public struct WebSocketOffer: Equatable, Sendable {
  /// Why the server's answer opens no WebSocket.
  public struct Refusal: Error, Equatable, Sendable {
    /// Ends the sentence "the response …"; without any text of the server.
    public let reason: String
  }

  /// The fields of an answer that ``accepts(_:)`` reads.
  public static let answerFields = [
    "Upgrade", "Connection", "Sec-WebSocket-Accept", "Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions",
  ]

  private let key: String
  private let subprotocols: [String]

  /// - Parameters:
  ///   - nonce: 16 bytes, other ones for each connection.
  ///   - subprotocols: tokens, the preferred ones first. If there are any, the server must choose one.
  public init(nonce: [UInt8], subprotocols: [String] = []) {
    (key, self.subprotocols) = (base64(nonce), subprotocols)
  }

  /// The fields of the request, which is a GET of HTTP/1.1.
  public var fields: [(name: String, value: String)] {
    var fields = [
      ("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", WebSocketHandshake.version),
      ("Sec-WebSocket-Key", key), ("Sec-WebSocket-Extensions", "permessage-deflate"),
    ]
    if !subprotocols.isEmpty { fields.append(("Sec-WebSocket-Protocol", subprotocols.joined(separator: ", "))) }
    return fields
  }

  /// Checks a response with 101.
  ///
  /// - Parameter answer: the values of all fields of a name.
  /// - Returns: whether the server may compress its messages.
  /// - Throws: a refusal; the connection is of no use.
  public func accepts(_ answer: (_ name: String) -> [String]) throws(Refusal) -> Bool {
    func holds(_ name: String, _ token: String) -> Bool {
      answer(name).contains { $0.elements(separatedBy: .comma).contains { $0.equalsIgnoringCase(token) } }
    }
    guard holds("Upgrade", "websocket"), holds("Connection", "upgrade") else {
      throw Refusal(reason: "changes to another protocol than WebSocket")
    }
    let accept = answer("Sec-WebSocket-Accept").map(\.trimmed)
    guard accept.count == 1, accept[0] == WebSocketHandshake.accept(key: key) else {
      throw Refusal(reason: "does not have the Sec-WebSocket-Accept that belongs to the request")
    }
    let chosen = answer("Sec-WebSocket-Protocol").map { String($0.trimmed) }
    switch (subprotocols.isEmpty, chosen.count) {
    case (true, 0): break
    case (true, _): throw Refusal(reason: "has a subprotocol, and none was offered")
    case (false, 0): throw Refusal(reason: "has none of the offered subprotocols")
    case (false, _):
      guard chosen.count == 1, subprotocols.contains(chosen[0]) else {
        throw Refusal(reason: "has a subprotocol that was not offered")
      }
    }
    return try compresses(answer("Sec-WebSocket-Extensions").flatMap { $0.elements(separatedBy: .comma) })
  }

  private func compresses(_ extensions: [Substring]) throws(Refusal) -> Bool {
    guard let parts = extensions.first?.elements(separatedBy: .semicolon) else { return false }
    guard extensions.count == 1, parts.first?.equalsIgnoringCase("permessage-deflate") == true else {
      throw Refusal(reason: "has a WebSocket extension that was not offered")
    }
    var names: Set<String> = []
    for parameter in parts.dropFirst() {
      let pair = parameter.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(\.trimmed)
      let (name, value) = (pair[0].asciiLowercased, pair.count == 2 ? pair[1].filter { $0 != "\"" } : nil)
      let isValid =
        switch name {
        case "server_no_context_takeover", "client_no_context_takeover": value == nil
        case "server_max_window_bits": value.flatMap { Int($0) }.map { (8...15).contains($0) } == true
        default: false
        }
      guard isValid, names.insert(name).inserted else {
        throw Refusal(reason: "has a parameter of permessage-deflate that was not offered")
      }
    }
    return true
  }
}
