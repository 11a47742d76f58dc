import CLinux
import Glibc
import StreamRuntime
import TestSupport
import Testing

@testable import StreamServer

/// A client that sends the bytes that a test gives it, and reads responses as RFC 9112 says.
final class HTTPWireClient {
  struct Silence: Error {}

  /// A response, with as much of its body as has arrived when it ends.
  struct Response: CustomStringConvertible {
    var status = 0
    var fields: [(name: String, value: String)] = []
    var body: [UInt8] = []
    /// The body has its whole length, or its last chunk, or ends with the connection as the head announces.
    var isComplete = false

    var text: String { String(decoding: body, as: UTF8.self) }
    var description: String { "\(status) \(fields) \(isComplete ? "" : "(cut off) ")\(text.prefix(500))" }

    subscript(name: String) -> String? { fields.first { $0.name == name.lowercased() }?.value }
  }

  let wire: WireClient
  /// The server's end, of a client that was made with both; for options of the socket.
  private(set) var serverEnd: CInt = -1
  private var input: [UInt8] = []
  private var hasEnded = false

  init(_ wire: WireClient) { self.wire = wire }

  convenience init(_ path: String, receiveBuffer: CInt? = nil) throws {
    self.init(try WireClient(path, receiveBuffer: receiveBuffer))
  }

  convenience init(_ harness: ServerHarness) throws { try self.init(harness.path) }

  /// One that the server takes for a process of that user; nil: for a peer without credentials, as over TCP.
  convenience init(_ server: StreamServer, user: UInt32?) throws {
    var ends: [CInt] = [0, 0]
    guard socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
      throw SystemError("socketpair")
    }
    _ = fcntl(ends[1], F_SETFL, O_NONBLOCK)
    let other = ends[1]
    server.loops[0].execute {
      server.accept(OwnedDescriptor(other), user.map { PeerCredentials(process: 4711, user: $0, group: $0) })
    }
    self.init(WireClient(taking: ends[0]))
    serverEnd = other
  }

  // MARK: Requests

  func send(_ text: String) { wire.send(Array(text.utf8)) }
  func send(_ bytes: [UInt8]) { wire.send(bytes) }

  /// A request of HTTP/1.1 for the host `localhost`.
  func request(_ method: String, _ target: String, _ fields: [String] = [], body: [UInt8]? = nil) {
    var text = "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\n"
    for field in fields { text += field + "\r\n" }
    if let body { text += "Content-Length: \(body.count)\r\n" }
    send(Array((text + "\r\n").utf8) + (body ?? []))
  }

  func get(_ target: String, _ fields: String...) { request("GET", target, fields) }

  /// Sends a request without a body, and reads its response.
  func fetch(
    _ target: String, method: String = "GET", _ fields: String..., sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> Response {
    request(method, target, fields)
    return try response(isToHead: method == "HEAD", sourceLocation: sourceLocation)
  }

  func post(_ target: String, _ body: String, _ fields: String...) {
    request("POST", target, fields, body: Array(body.utf8))
  }

  /// Sends nothing more.
  func closeWriting() { shutdown(wire.descriptor.raw, CInt(SHUT_WR)) }

  // MARK: Responses

  /// - Returns: false at the connection's end.
  private func receive(_ location: SourceLocation) throws -> Bool {
    guard !hasEnded else { return false }
    var ready = pollfd(fd: wire.descriptor.raw, events: Int16(POLLIN), revents: 0)
    guard poll(&ready, 1, CInt(hangTime.wholeMilliseconds)) == 1 else {
      Issue.record("nothing came", sourceLocation: location)
      throw Silence()
    }
    var buffer = [UInt8](repeating: 0, count: 256 << 10)
    errno = 0
    let count = recv(wire.descriptor.raw, &buffer, buffer.count, 0)
    if count > 0 { input += buffer[..<count] } else { hasEnded = true }
    return count > 0
  }

  private func line(_ location: SourceLocation) throws -> String? {
    while true {
      if let end = input.firstIndex(of: UInt8(ascii: "\n")) {
        #expect(end > 0 && input[end - 1] == UInt8(ascii: "\r"), "a line without CR", sourceLocation: location)
        let line = String(decoding: input[..<max(0, end - 1)], as: UTF8.self)
        input.removeFirst(end + 1)
        return line
      }
      guard try receive(location) else { return nil }
    }
  }

  /// The next bytes; nil if the connection ends before.
  func take(_ count: Int, _ location: SourceLocation) throws -> [UInt8]? {
    while input.count < count { guard try receive(location) else { return nil } }
    defer { input.removeFirst(count) }
    return Array(input[..<count])
  }

  /// The head of the next response; nil at the connection's end.
  func head(sourceLocation location: SourceLocation = #_sourceLocation) throws -> Response? {
    guard let start = try line(location) else {
      #expect(input.isEmpty, "a head is cut off", sourceLocation: location)
      return nil
    }
    var response = Response()
    #expect(start.hasPrefix("HTTP/1.1 "), "\(start)", sourceLocation: location)
    response.status = Int(start.dropFirst(9).prefix(3)) ?? 0
    while let field = try line(location), !field.isEmpty {
      let parts = field.split(separator: ":", maxSplits: 1)
      #expect(parts.count == 2, "\(field)", sourceLocation: location)
      response.fields.append((parts[0].lowercased(), String(parts.last!.drop { $0 == " " })))
    }
    return response
  }

  /// The next chunk of a body; empty: the last one; nil: the connection ended without one.
  func chunk(sourceLocation location: SourceLocation = #_sourceLocation) throws -> [UInt8]? {
    guard let size = try line(location) else { return nil }
    guard let count = Int(size, radix: 16) else {
      Issue.record("a chunk of \(size) bytes", sourceLocation: location)
      throw Silence()
    }
    guard let data = try take(count, location), let end = try take(2, location) else { return nil }
    #expect(end == [13, 10], "a chunk without its end", sourceLocation: location)
    return data
  }

  /// The next chunk as text.
  func chunkText(sourceLocation: SourceLocation = #_sourceLocation) throws -> String? {
    try chunk(sourceLocation: sourceLocation).map { String(decoding: $0, as: UTF8.self) }
  }

  /// The next response with its body.
  /// - Parameter isToHead: the request was HEAD.
  func response(isToHead: Bool = false, sourceLocation location: SourceLocation = #_sourceLocation) throws -> Response {
    guard var response = try head(sourceLocation: location) else {
      Issue.record("the connection ended without a response", sourceLocation: location)
      throw Silence()
    }
    if isToHead || response.status == 204 || response.status == 304 || response.status < 200 {
      response.isComplete = true
    } else if let length = response["Content-Length"] {
      let body = try take(Int(length) ?? 0, location)
      (response.body, response.isComplete) = (body ?? input, body != nil)
      if body == nil { input = [] }
    } else if response["Transfer-Encoding"] == "chunked" {
      while let chunk = try chunk(sourceLocation: location) {
        response.body += chunk
        if chunk.isEmpty {
          response.isComplete = true
          break
        }
      }
    } else {
      while try receive(location) {}
      (response.body, response.isComplete) = (input, true)
      input = []
    }
    return response
  }

  /// What the server sends up to the end of the connection, which is no reset.
  func rest(sourceLocation location: SourceLocation = #_sourceLocation) throws -> [UInt8] {
    while try receive(location) {}
    #expect(errno != ECONNRESET, "the connection was reset", sourceLocation: location)
    return input
  }

  /// Whether the connection has ended, and nothing came before.
  func isAtEnd(sourceLocation location: SourceLocation = #_sourceLocation) throws -> Bool {
    guard input.isEmpty else { return false }
    return try !receive(location)
  }
}

/// The events of a text/event-stream, as the WHATWG's text says.
struct ParsedEvent: Equatable {
  var type = "message"
  var id: String?
  var data = ""

  init(_ type: String = "message", id: String?, _ data: String) { (self.type, self.id, self.data) = (type, id, data) }

  /// - Parameter text: of blocks that are complete.
  static func all(in text: String) -> [ParsedEvent] {
    var (events, lastID) = ([ParsedEvent](), String?.none)
    for block in text.split(separator: "\n\n") {
      var (event, lines) = (ParsedEvent(id: nil, ""), [Substring]())
      for line in block.split(separator: "\n", omittingEmptySubsequences: false) {
        let name = line.prefix { $0 != ":" }
        let value = line.dropFirst(name.count + 1)
        let trimmed = value.first == " " ? value.dropFirst() : value
        switch name {
        case "event": event.type = String(trimmed)
        case "id": lastID = String(trimmed)
        case "data": lines.append(trimmed)
        default: break
        }
      }
      guard !lines.isEmpty else { continue }
      (event.id, event.data) = (lastID, lines.joined(separator: "\n"))
      events.append(event)
    }
    return events
  }
}
