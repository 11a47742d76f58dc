import CLinux
import Foundation
import Glibc
import StreamRuntime
import Testing

@testable import StreamServer

/// A client that sends requests over a real socket, and reads responses with a Content-Length.
final class HTTPTestClient {
  struct Silence: Error {}

  struct Response {
    let status: Int
    /// By their names in small letters.
    let fields: [String: String]
    let body: String
  }

  private let descriptor: OwnedDescriptor
  private var input: [UInt8] = []

  init(_ path: String) throws {
    descriptor = try UnixSocket.connect(to: path)
    _ = fcntl(descriptor.raw, F_SETFL, 0)
  }

  /// One that the server takes for a process of that user; nil: for a peer without credentials.
  init(_ server: StreamServer, user: UInt32?) throws {
    var ends: [CInt] = [0, 0]
    let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
    guard socketpair(AF_UNIX, type, 0, &ends) == 0 else { throw SystemError("socketpair") }
    _ = fcntl(ends[1], F_SETFL, O_NONBLOCK)
    descriptor = OwnedDescriptor(ends[0])
    let other = ends[1]
    server.loops[0].execute {
      server.accept(OwnedDescriptor(other), user.map { PeerCredentials(process: 4711, user: $0, group: $0) })
    }
  }

  func send(_ text: String) {
    let bytes = Array(text.utf8)
    var offset = 0
    while offset < bytes.count {
      let count = bytes.withUnsafeBytes {
        Glibc.send(descriptor.raw, $0.baseAddress! + offset, bytes.count - offset, CInt(MSG_NOSIGNAL))
      }
      guard count > 0 else { return }
      offset += count
    }
  }

  func request(_ target: String, method: String = "GET", _ fields: [String] = []) {
    send("\(method) \(target) HTTP/1.1\r\nHost: localhost\r\n" + fields.map { $0 + "\r\n" }.joined() + "\r\n")
  }

  func get(_ target: String, method: String = "GET", _ fields: String...) throws -> Response {
    request(target, method: method, fields)
    return try response(isHead: method == "HEAD")
  }

  /// The next response.
  func response(isHead: Bool = false) throws -> Response {
    while true {
      let text = String(decoding: input, as: UTF8.self)
      if let end = text.range(of: "\r\n\r\n") {
        let lines = text[..<end.lowerBound].components(separatedBy: "\r\n")
        var fields: [String: String] = [:]
        for line in lines.dropFirst() {
          let colon = line.range(of: ": ")
          let name = String(line[..<(colon?.lowerBound ?? line.endIndex)]).lowercased()
          fields[name] = String(line[(colon?.upperBound ?? line.endIndex)...])
        }
        let length = isHead ? 0 : fields["content-length"].flatMap(Int.init) ?? 0
        let start = text[..<end.upperBound].utf8.count
        if input.count >= start + length {
          let body = String(decoding: input[start..<start + length], as: UTF8.self)
          input.removeFirst(start + length)
          let status = lines[0].split(separator: " ")
          return Response(status: status.count > 1 ? Int(status[1]) ?? 0 : 0, fields: fields, body: body)
        }
      }
      try read()
    }
  }

  private func read() throws {
    var ready = pollfd(fd: descriptor.raw, events: Int16(POLLIN), revents: 0)
    guard poll(&ready, 1, 30_000) == 1 else { throw Silence() }
    var buffer = [UInt8](repeating: 0, count: 256 << 10)
    let count = recv(descriptor.raw, &buffer, buffer.count, 0)
    guard count > 0 else { throw Silence() }
    input += buffer[..<count]
  }
}
