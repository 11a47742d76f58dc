import Events

/// A command to the daemon: the data of a REQUEST_RESPONSE to `$control`. Source: WIRE.md, "Commands".
package enum ControlCommand: Equatable, Sendable {
  /// Ends the connection of the client with this number, as in `$clients`.
  case kick(client: UInt64)
  /// Makes the source of a stream ask its upstream now.
  case refresh(stream: String)

  /// The name in place of a stream's in the request.
  package static let route = "$control"

  /// Maximum bytes of a command: many times those of a name.
  private static let byteLimit = 4096

  package var json: [UInt8] {
    switch self {
    case .kick(let client): Array(#"{"kick":\#(client)}"#.utf8)
    case .refresh(let stream): Array(#"{"refresh":\#(JSONScalar.quoted(stream))}"#.utf8)
    }
  }

  /// - Parameter data: the request's data.
  package init(json data: [UInt8]) throws(SubscribeOptions.Malformed) {
    let known = #"a command is {"kick": CLIENT} or {"refresh": "STREAM"}"#
    guard data.count <= Self.byteLimit, let members = JSONValue(data)?.members.map(Array.init), members.count == 1
    else {
      throw .init(known)
    }
    let (name, value) = members[0]
    switch name.string {
    case "kick":
      guard let client = UInt64(String(decoding: value.bytes, as: UTF8.self)) else {
        throw .init("\"kick\" must be the number of a client")
      }
      self = .kick(client: client)
    case "refresh":
      guard let stream = value.string else { throw .init("\"refresh\" must be the name of a stream") }
      self = .refresh(stream: stream)
    default: throw .init(known)
    }
  }
}
