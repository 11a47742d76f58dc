import Events

/// A command to the daemon: the data of a REQUEST_RESPONSE to `$control`. Source: WIRE.md, "Commands".
package enum ControlCommand: Equatable, Sendable {
  /// Ends the connection of the client with this number, as in `$clients`.
  case kick(client: UInt64)
  /// Makes the source of a stream ask its upstream now.
  case refresh(stream: String)
  /// Makes a stream of a template.
  case make(stream: String)
  /// Deletes a stream of a template.
  case forget(stream: String)

  /// The name in place of a stream's in the request.
  package static let route = "$control"

  /// Maximum bytes of a command: many times those of a name.
  private static let byteLimit = 4096

  /// Whether every client may give the command: the rights of its stream decide.
  package var isForEverybody: Bool {
    switch self {
    case .kick, .refresh: false
    case .make, .forget: true
    }
  }

  package var json: [UInt8] {
    switch self {
    case .kick(let client): Array(#"{"kick":\#(client)}"#.utf8)
    case .refresh(let stream): Array(#"{"refresh":\#(JSONScalar.quoted(stream))}"#.utf8)
    case .make(let stream): Array(#"{"make":\#(JSONScalar.quoted(stream))}"#.utf8)
    case .forget(let stream): Array(#"{"forget":\#(JSONScalar.quoted(stream))}"#.utf8)
    }
  }

  /// - Parameter data: the request's data.
  package init(json data: [UInt8]) throws(SubscribeOptions.Malformed) {
    let known = #"a command is {"kick": CLIENT}, {"refresh": "STREAM"}, {"make": "STREAM"} or {"forget": "STREAM"}"#
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
    case "refresh", "make", "forget":
      guard let stream = value.string else { throw .init("\"\(name.string ?? "")\" must be the name of a stream") }
      self =
        name.string == "refresh"
        ? .refresh(stream: stream) : name.string == "make" ? .make(stream: stream) : .forget(stream: stream)
    default: throw .init(known)
    }
  }
}
