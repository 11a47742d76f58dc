import CLinux
import Dispatch
import Glibc
import StreamRuntime
import TestSupport
import Testing

@testable import Systemd
@testable import streamd

/// What clients get of a daemon that does not start.
@Suite struct RefusingClientsTests {
  private static func ask(_ request: String, at path: String) throws -> CInt {
    let client = try UnixSocket.connect(to: path).release()
    _ = fcntl(client, F_SETFL, 0)
    let bytes = Array(request.utf8)
    #expect(send(client, bytes, bytes.count, CInt(MSG_NOSIGNAL)) == bytes.count)
    return client
  }

  private static func answer(to client: CInt) -> String {
    defer { close(client) }
    var (text, buffer) = ([UInt8](), [UInt8](repeating: 0, count: 4096))
    while case let count = recv(client, &buffer, buffer.count, 0), count > 0 { text += buffer[..<count] }
    return String(decoding: text, as: UTF8.self)
  }

  @Test func onlyFilesThatAllMayReadAreShownToAll() throws {
    let folder = try TemporaryFolder(["streamd.toml": "x"])
    let path = folder.path("streamd.toml")
    chmod(folder.path, 0o755)
    chmod(path, 0o644)
    #expect(ConfigurationText.mayAllRead(filesAt: path))
    chmod(path, 0o640)
    #expect(!ConfigurationText.mayAllRead(filesAt: path))
    chmod(path, 0o644)
    chmod(folder.path, 0o750)
    #expect(!ConfigurationText.mayAllRead(filesAt: path))
    chmod(folder.path, 0o755)
    mkdir(folder.path("streamd.d"), 0o755)
    try folder.write([], to: "streamd.d/a.toml")
    chmod(folder.path("streamd.d/a.toml"), 0o600)
    #expect(!ConfigurationText.mayAllRead(filesAt: path))
    #expect(!ConfigurationText.mayAllRead(filesAt: folder.path("missing.toml")))
  }

  @Test func eachClientIsAnsweredInItsProtocol() throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let listener = try UnixSocket.listen(at: path, mode: 0o600).release()
    // Clients are answered for a second, on a busy machine perhaps only those that have come before.
    let clients = try [
      "GET /streams/s HTTP/1.1\r\nHost: a\r\n\r\n", "GET /streams/s?as=sse HTTP/1.1\r\nHost: a.example.org\r\n\r\n",
      "\0\0\u{10}",
    ].map { try Self.ask($0, at: path) }
    let ended = DispatchSemaphore(value: 0)
    DispatchQueue.global().async {
      refuseClients(
        from: [.init(descriptor: listener, name: "streamd.socket")], of: "/c.toml", "/c.toml:3: streams.s: no source")
      ended.signal()
    }
    // These clients are of the daemon's user.
    let sentence =
      "streamd cannot start: its configuration has errors: /c.toml:3: streams.s: no source; see streamd --check /c.toml"
    let value = Self.answer(to: clients[0])
    #expect(value.hasPrefix("HTTP/1.1 503 ") && value.contains(sentence), "\(value)")
    let events = Self.answer(to: clients[1])
    #expect(events.hasPrefix("HTTP/1.1 200 ") && events.contains("retry: 10000\n\nevent: end\n"), "\(events)")
    let frames = Self.answer(to: clients[2])
    #expect(!frames.contains("HTTP") && frames.hasSuffix(sentence), "\(frames)")
    ended.wait()
  }
}
