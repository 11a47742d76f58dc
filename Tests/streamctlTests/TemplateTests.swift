import ClientTestSupport
import Dispatch
import Glibc
import Reactive
import StreamClient
import StreamProtocol
import StreamRuntime
import StreamServer
import TestSupport
import Testing

/// Makes streams to which clients publish.
private final class PublishedMaker: StreamMaker {
  let queue = WorkQueue(label: "maker")
  let hasMemory = true
  private let server: StreamServer

  init(_ server: StreamServer) { self.server = server }

  func makesAtOnce(_ template: NameTemplate) -> Bool { false }

  func make(
    _ name: String, of template: NameTemplate, _ values: NameValues, for maker: StreamOwner?
  ) throws(StreamFailure) -> [String] {
    var configuration = StreamConfiguration(name: name, source: "publish", replay: 10)
    configuration.template = template.text
    let source = PublishSource()
    do {
      try server.add(
        configuration, source: source.setFailureType(to: StreamFailure.self), publishSource: source)
    } catch {
      throw StreamFailure("\(error)")
    }
    return []
  }

  func forget(_ names: [String]) {}
}

/// Streams of templates, made and ended by the client library and by the program.
@Suite(.timeLimit(.minutes(10))) struct TemplateTests {
  /// Serves the template `s/{x}` with at most two streams, and a configured stream `notes`.
  private func withServer(_ body: (String) async throws -> Void) async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("s")
    let server = try StreamServer(limits: ServerLimits(workers: 1), version: "1.2.3")
    let source = PublishSource()
    try server.add(
      StreamConfiguration(name: "notes", source: "publish"),
      source: source.setFailureType(to: StreamFailure.self), publishSource: source)
    let maker = PublishedMaker(server)
    let template = StreamTemplate(
      try NameTemplate("s/{x}", parameters: [:]), limit: 2, source: "publish", takesValues: true)
    maker.queue.sync { server.setTemplates([template], maker: maker) }
    try server.start()
    server.listen(on: try UnixSocket.listen(at: path, mode: 0o600))
    try await body(path)
    await withCheckedContinuation { continuation in server.stop { continuation.resume() } }
  }

  @Test func aStreamExistsFromMakeToForget() async throws {
    try await withServer { path in
      let connection = try StreamConnection(socket: path)
      try await connection.make("s/a")
      try await connection.make("s/a")
      let probe = connection.stream("s/a", options: .init(marker: true)).probe(2)
      guard case .value? = await probe.next() else { return #expect(Bool(false), "no marker of an empty stream") }
      try await connection.forget("s/a")
      guard case .failed(let error)? = await probe.next() else { return #expect(Bool(false), "the stream goes on") }
      #expect(error.reason == .removed)
    }
  }

  private func reason(_ body: () async throws(StreamError) -> Void) async -> FailureReason? {
    do throws(StreamError) { try await body() } catch { return error.reason }
    return nil
  }

  @Test func aRefusedCommandThrowsItsReason() async throws {
    try await withServer { path in
      let connection = try StreamConnection(socket: path)
      #expect(await reason { () throws(StreamError) in try await connection.make("other") } == .noStream)
      #expect(await reason { () throws(StreamError) in try await connection.make("notes") } == .noEffect)
      #expect(await reason { () throws(StreamError) in try await connection.forget("s/a") } == .noStream)
      let used = ["s/a", "s/b"].map { connection.stream($0, options: .init(marker: true)).probe(1) }
      for probe in used { _ = await probe.next() }
      #expect(await reason { () throws(StreamError) in try await connection.make("s/c") } == .tooManyStreams)
      _ = used
    }
  }

  @Test func theProgramMakesAndForgetsSeveralStreams() async throws {
    try await withServer { path in
      let make = try Command(["--socket", path, "make", "s/a", "s/b"])
      #expect(await make.end() == (0, ""))
      let list = try Command(["--socket", path, "list", "--long"])
      let lines = await list.rest().split(separator: "\n").map { $0.split(separator: " ").map(String.init) }
      #expect(lines.map(\.first) == ["NAME", "notes", "s/a", "s/b", "TEMPLATE", "s/{x}"])
      #expect(lines.prefix(4).map(\.last) == ["DESCRIPTION", "-", "s/{x}", "s/{x}"])
      #expect(lines.last == ["s/{x}", "publish", "2", "2", "2", "0", "0"])
      #expect(await list.end() == (0, ""))
      let forget = try Command(["--socket", path, "forget", "s/a", "s/b"])
      #expect(await forget.end() == (0, ""))
      let again = try Command(["--socket", path, "forget", "s/b"])
      #expect(await again.end() == (77, "streamctl: no stream named \"s/b\"\n"))
    }
  }

  @Test func aRefusalKeepsNoLaterCommandFromBeingGiven() async throws {
    try await withServer { path in
      let make = try Command(["--socket", path, "make", "s/a"])
      #expect(await make.end() == (0, ""))
      let forget = try Command(["--socket", path, "forget", "s/b", "notes", "s/a"])
      #expect(
        await forget.end() == (
          77,
          "streamctl: no stream named \"s/b\"\n"
            + "streamctl: \"notes\" is configured: only streams of templates are deleted\n"
        ))
      let again = try Command(["--socket", path, "forget", "s/a"])
      #expect(await again.end() == (77, "streamctl: no stream named \"s/a\"\n"))
    }
  }

  @Test func templatesAreListedAfterTheStreamsThatAreSelected() async throws {
    let streams = #"[{"name":"clock","source":"timer","state":"idle","subscribers":0}]"#
    let templates = #"""
      {"templates":[{"name":"s/{x}","source":"publish","streams":7,"limit":1000,"made":9,"forgotten":2,"refused":1,"new":[]},
      {"name":"weather/{\u001bcity}"}]}
      """#
    try await ScriptedServer.run(script: { peer, event in
      guard case .request(let id, _, _, let name, _) = event else { return }
      peer.send(name == "$templates" ? templates : name == "$stats" ? "{}" : streams, on: id, isComplete: true)
    }) { server in
      func list(_ words: String...) async throws -> String {
        let list = try Command(["--socket", server.path, "list"] + words)
        let text = await list.rest()
        #expect(await list.end() == (0, ""))
        return text
      }
      let head = "NAME   STATE  SOURCE  SUBSCRIBERS  AGE  DESCRIPTION\n"
      let all = try await list()
      #expect(
        all == head + """
          clock  idle   timer   0            -

          TEMPLATE              SOURCE   STREAMS  LIMIT  MADE  FORGOTTEN  REFUSED
          s/{x}                 publish  7        1000   9     2          1
          weather/{\\u{1B}city}  -        -        -      -     -          -

          """)
      let clock = try await list("clock")
      #expect(clock == head + "clock  idle   timer   0            -\n")
      let none = "NAME  STATE  SOURCE  SUBSCRIBERS  AGE  DESCRIPTION\n"
      for word in ["s/*", "s/{x}"] {
        let template = try await list(word)
        #expect(
          template == none + """

            TEMPLATE  SOURCE   STREAMS  LIMIT  MADE  FORGOTTEN  REFUSED
            s/{x}     publish  7        1000   9     2          1

            """)
      }
      let failing = try await list("--failing")
      #expect(failing == none)
    }
  }
}
