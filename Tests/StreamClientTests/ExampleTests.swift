import ClientTestSupport
import Glibc
import StreamRuntime
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
}
