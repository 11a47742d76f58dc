import ClientTestSupport
import Glibc
import Reactive
import StreamClient
import StreamRuntime
import StreamServer
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(10))) struct ExampleTests {
  /// A terminal, so that each line is seen when it is printed.
  @Test func theExampleServesValuesToAnotherProcess() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let terminal = try PseudoTerminal(width: 80, height: 24)
    let program = try ChildProcess.built("example")
    let server = try ChildProcess(program, ["serve", path], output: .descriptor(terminal.program))
    while (try? UnixSocket.connect(to: path).raw) == nil { await Task.yield() }
    let reader = try ChildProcess(program, ["read", path])
    #expect(await reader.text(of: reader.output) == "1\n4\n9\n")
    #expect(await reader.end() == 0)
    try await terminal.drawn("working out 3\r\n")
    #expect(terminal.text == "working out 1\r\nworking out 2\r\nworking out 3\r\n")
    server.signal(SIGTERM)
    #expect(await server.end() == 128 + SIGTERM)
  }

  /// The program of docs/START.md.
  @Test func aProgramPublishesAndReads() async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let server = try StreamServer(limits: ServerLimits(workers: 1))
    let publishSource = PublishSource()
    try server.add(
      StreamConfiguration(name: "notes"), source: publishSource.setFailureType(to: StreamFailure.self),
      publishSource: publishSource)
    try server.start()
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
    try await StreamConnection(socket: path).publish(["from curl", "from Python"].publisher.values, to: "notes")
    var printed: [String] = []

    let connection = try StreamConnection(socket: path)
    try await connection.publish(["from Swift"].publisher.values, to: "notes")
    let notes = connection.stream("notes", options: SubscribeOptions(from: .last(2)))
    for try await note in notes.prefix(2).values {
      printed.append(String(decoding: note.data, as: UTF8.self))
    }

    #expect(printed == ["from Python", "from Swift"])
    await withCheckedContinuation { done in server.stop { done.resume() } }
  }
}
