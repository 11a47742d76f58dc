import CLinux
import Glibc
import StreamClient
import StreamRuntime
import TestSupport
import Testing

/// The built binary with sockets as its sources.
@Suite(.timeLimit(.minutes(10))) struct LineDaemonTests {
  private let folder: TemporaryFolder

  init() throws { folder = try TemporaryFolder() }

  private func text(_ event: StreamEvent) -> String { String(decoding: event.data, as: UTF8.self) }

  private func accept(_ listener: borrowing OwnedDescriptor) async throws -> OwnedDescriptor {
    var connection: CInt = -1
    let socket = listener.raw
    let isAccepted = try await eventually {
      connection = accept4(socket, nil, nil, CInt(SOCK_CLOEXEC.rawValue))
      return connection >= 0
    }
    #expect(isAccepted)
    return OwnedDescriptor(connection)
  }

  private func send(_ text: String, on socket: borrowing OwnedDescriptor) {
    let bytes = Array(text.utf8)
    #expect(write(socket.raw, bytes, bytes.count) == bytes.count)
  }

  @Test func linesOfASocketAreSharedAndLongOnesCountedAndAReloadChangesTheAddress() async throws {
    let listener = try UnixSocket.listen(at: folder.path("a"), mode: 0o600)
    let other = try UnixSocket.listen(at: folder.path("b"), mode: 0o600)
    func configuration(_ name: String) -> String {
      """
      [streams.s]
      type = "text/plain"
      socket = { address = "unix:\(folder.path(name))", send = ["hello\\n"], max_body = "10B" }
      retry = { first = "10ms", max = "20ms" }
      """
    }
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(configuration("a"))
    let connection = try StreamConnection(socket: daemon.folder.path("s"))
    // From the newest event on: a subscription may begin after the line has come.
    let stream = connection.stream("s", options: .init(from: .latest)).values
    let subscribers = (0..<2).map { _ in Task { try await stream.first { _ in true }.map(text) } }
    let peer = try await accept(listener)
    send("12345678901\n", on: peer)
    #expect(try await daemon.logs("s: event failed: a line over 10 B (max_body)"))
    send("one\n", on: peer)
    for subscriber in subscribers { #expect(try await subscriber.value == "one") }
    try await daemon.reload(configuration("b"))
    let subscriber = Task { try await stream.first { text($0) == "two" } != nil }
    let replacement = try await accept(other)
    send("two\n", on: replacement)
    #expect(try await subscriber.value)
    let row = try await connection.stream("$stats").values.first { _ in true }.map(text)
    #expect(row?.contains(#""errors":1"#) == true, "\(row ?? "")")
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(!daemon.log.contains("hello"))
  }
}
