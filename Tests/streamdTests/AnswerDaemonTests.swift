import FoundationEssentials
import Glibc
import StreamClient
import StreamRuntime
import TestSupport
import Testing

/// Requests of clients whose answers are streams, on the daemon itself, with a model as the upstream.
@Suite(.timeLimit(.minutes(10))) struct AnswerDaemonTests {
  let upstream: Upstream
  let key = uniqueKey()

  init() throws { upstream = try Upstream.shared.get() }

  func template(_ query: String = "", _ more: String = "", http: String = "", keep: String = "disk") -> String {
    """
    [streams."answers/{id}"]
    http = { url = "\(upstream.url("/model/\(key)?\(query)"))", method = "POST", stream = "sse", body = "request"\(http) }
    write = ["*"]
    read = ["owner"]
    replay = "all"
    overflow = "block"
    keep = "\(keep)"
    \(more)
    """
  }

  func words(_ body: String, _ count: Int = 5) -> [String] { (1..<count + 1).map { "\(body)-\($0) " } }

  /// The words of the model in the data of events.
  func words(in text: String) -> [String] {
    text.split(separator: "\n").filter { $0.hasPrefix("data: {\"id\"") }.compactMap { line in
      line.firstRange(of: "\"content\": \"").map { String(line[$0.upperBound...].prefix { $0 != "\"" }) }
    }
  }

  func texts(_ path: String, _ name: String) async throws -> [String] {
    var data: [String] = []
    let connection = try StreamConnection(socket: path)
    defer { connection.close() }
    for try await event in connection.stream(name).values {
      data.append("data: " + String(decoding: event.data, as: UTF8.self))
    }
    return words(in: data.joined(separator: "\n"))
  }

  func failure(_ path: String, _ name: String) async -> String? {
    do {
      _ = try await texts(path, name)
      return nil
    } catch { return "\(error)" }
  }

  @Test func aRequestIsMadeOnceAndItsAnswerIsReadBySeveral() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template("hold=3"))
    let made = try await http(path, "PUT", "/streams/answers/7f3a", body: "hello")
    #expect(made.status == 201 && made.field("location") == "/streams/answers/7f3a")
    #expect(try await http(path, "PUT", "/streams/answers/7f3a", body: "hello").status == 200)
    #expect(try await http(path, "PUT", "/streams/answers/7f3a", body: "other").status == 409)
    #expect(try await http(path, "PUT", "/streams/answers/7f3a", body: "").status == 400)
    #expect(try await http(path, "GET", "/streams/answers/none", ["Accept: text/event-stream"]).status == 404)
    // It has begun without a reader. One reader leaves and comes back.
    let first = try await daemon.events(2, of: "answers/7f3a")
    async let second = texts(path, "answers/7f3a")
    async let third = http(path, "GET", "/streams/answers/7f3a", ["Accept: text/event-stream"])
    _ = try upstream.text("/release/\(key)")
    #expect(try await second == words("hello"))
    let stream = try await third
    #expect(words(in: stream.body) == words("hello"))
    #expect(stream.body.contains("event: end\ndata: {\"reason\":\"finished\"}"))
    #expect(try await texts(path, "answers/7f3a") == words("hello") && first.count == 2)
    #expect(try upstream.modelled(key).requests == ["hello": 1])
    #expect(await daemon.stop() == 0)
  }

  @Test func aRequestWithoutANameGetsOneAndItsAnswerInOneCall() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template())
    let named = try await http(path, "POST", "/streams/answers/", ["Content-Type: text/plain"], body: "a")
    let name = try #require(named.field("location")).dropFirst("/streams/".count)
    #expect(named.status == 201 && name.hasPrefix("answers/") && name.count == 34 && named.body == "\(name)\n")
    #expect(try await texts(path, String(name)) == words("a"))
    let whole = try await http(path, "POST", "/streams/answers/", ["Accept: text/event-stream"], body: "b")
    #expect(whole.status == 201 && words(in: whole.body) == words("b") && whole.field("location") != nil)
    #expect(try upstream.modelled(key).types == ["text/plain", "application/json"])
    #expect(await daemon.stop() == 0)
  }

  @Test func aClientThatKnowsNoStreamsGetsTheAnswerAsFromTheUpstream() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template())
    let whole = try await http(path, "POST", "/requests/answers/chat/completions?x=1", body: "b")
    #expect(whole.status == 200 && whole.field("content-type") == "text/event-stream", "\(whole)")
    #expect(words(in: whole.body) == words("b"))
    #expect(whole.body.hasSuffix("data: [DONE]\n\n") && !whole.body.contains("id: ") && !whole.body.contains("event:"))
    #expect(whole.field("location")?.hasPrefix("/streams/answers/") == true)
    // With their names, if the stream has them.
    try await daemon.reload(template("", http: ", sse = \"envelope\""))
    let named = try await http(path, "POST", "/requests/answers", body: "b")
    #expect(words(in: named.body) == words("b") && named.body.hasSuffix("data: [DONE]\n\n"))
    // An answer that is no stream is passed on as it is.
    let json = try await http(path, "POST", "/requests/answers", body: "{\"text\": \"c\"}")
    #expect(json.status == 200 && json.field("content-type") == "application/json")
    #expect(json.body.contains("\"content\": \"c\""))
    #expect(await daemon.stop() == 0)
  }

  @Test func aFailureOfTheUpstreamIsThatOfTheStreamWithoutSecrets() async throws {
    let credentials = try TemporaryFolder(["token": "t0ken-s3cret\n", "apikey": "k3y-s3cret\n"])
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    let secrets = ", bearer = { credential = \"token\" }, query = { apikey = { credential = \"apikey\" } }"
    try await daemon.start(
      template("status=429", http: secrets), environment: ["CREDENTIALS_DIRECTORY=\(credentials.path)"])
    let relayed = try await http(path, "POST", "/requests/answers/v1", body: "b0dy-s3cret")
    #expect(relayed.status == 429 && relayed.field("content-type") == "application/json")
    #expect(relayed.body == "{\"error\": {\"message\": \"no\\nBearer … …\", \"type\": \"mock\"}}")
    _ = try await http(path, "PUT", "/streams/answers/a", body: "b0dy-s3cret")
    let failure = try #require(await failure(path, "answers/a"))
    #expect(failure.contains("HTTP 429 Too Many Requests: {\"error\": {\"message\": \"no\\nBearer … …\""), "\(failure)")
    // The same request begins again, because it has failed.
    #expect(try await http(path, "PUT", "/streams/answers/a", body: "b0dy-s3cret").status == 201)
    _ = await self.failure(path, "answers/a")
    #expect(try upstream.modelled(key).requests == ["b0dy-s3cret": 3])
    #expect(!daemon.log.contains("s3cret"), "\(daemon.log)")
    #expect(await daemon.stop() == 0)
  }

  /// What the daemon shows, and what others see of its process, has neither what was asked nor what it is asked with.
  @Test func aRequestAndItsCredentialsAreNowhereElse() async throws {
    let credentials = try TemporaryFolder(["token": "t0ken-s3cret\n"])
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(
      template("status=500", http: ", bearer = { credential = \"token\" }"),
      environment: ["CREDENTIALS_DIRECTORY=\(credentials.path)"])
    for name in ["a", "b"] { _ = try await http(path, "PUT", "/streams/answers/\(name)", body: "b0dy-s3cret-\(name)") }
    #expect(await failure(path, "answers/a")?.contains("s3cret") == false)
    for (place, text) in try await shownTexts(
      socket: path, process: daemon.id ?? 0, log: daemon.log, folder: daemon.state)
    { #expect(!text.contains("s3cret"), "\(place): \(text)") }
    let folder = daemon.state + "/requests"
    for file in try FileManager.default.contentsOfDirectory(atPath: folder) {
      var status = Glibc.stat()
      #expect(stat("\(folder)/\(file)", &status) == 0 && status.st_mode & 0o777 == 0o600)
      #expect(!contentOfFile("\(folder)/\(file)").contains("s3cret"), "it has been made")
    }
    #expect(await daemon.stop() == 0)
    #expect(!daemon.log.contains("s3cret"))
  }

  @Test func aConnectionThatBreaksIsAFailureBehindTheEventsThatHaveCome() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template("cut=2"))
    let stream = try await http(path, "PUT", "/streams/answers/a", ["Accept: text/event-stream"], body: "b")
    #expect(stream.status == 201 && words(in: stream.body) == words("b", 2))
    #expect(stream.body.contains("event: end\ndata: {\"reason\":\"") && stream.body.contains("urn:streamd:failed"))
    let relayed = try await http(path, "POST", "/requests/answers", body: "c")
    #expect(words(in: relayed.body) == words("c", 2) && !relayed.isComplete)
    #expect(await daemon.stop() == 0)
  }

  @Test func anAnswerIsDeletedByWhoHasMadeItAndItsRequestCancelled() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template("hold=2&pause=0.01&words=1000", "running = 1"))
    _ = try await http(path, "PUT", "/streams/answers/a", body: "a")
    _ = try await http(path, "PUT", "/streams/answers/b", body: "b")
    _ = try await daemon.events(2, of: "answers/a")
    #expect(try upstream.modelled(key).requests == ["a": 1], "the other one waits")
    #expect(try await http(path, "DELETE", "/streams/answers/a").status == 204)
    _ = try await daemon.events(2, of: "answers/b")
    #expect(try upstream.modelled(key).requests == ["a": 1, "b": 1])
    #expect(try await http(path, "GET", "/streams/answers/a", ["Accept: text/event-stream"]).status == 404)
    _ = try upstream.text("/release/\(key)")
    while try upstream.modelled(key).left < 1 { try await Task.sleep(for: .milliseconds(2)) }
    #expect(await daemon.stop() == 0)
  }

  @Test func anAnswerIsReadUntilItsBufferIsFullAndWaitsForAReader() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template("words=400", "buffer = { events = 50 }\nforget = \"1h\""))
    _ = try await http(path, "PUT", "/streams/answers/a", body: "a")
    try await Task.sleep(for: .milliseconds(200))
    #expect(try await texts(path, "answers/a") == words("a", 400))
    #expect(try upstream.modelled(key).complete == 1)
    #expect(await daemon.stop() == 0)
  }

  @Test func anAnswerThatWaitsForAReaderKeepsNoOtherOneWaiting() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template("words=400", "buffer = { events = 50 }\nrunning = 1"))
    for name in ["a", "b"] { _ = try await http(path, "PUT", "/streams/answers/\(name)", body: name) }
    while try upstream.modelled(key).requests.count < 2 { try await Task.sleep(for: .milliseconds(5)) }
    for name in ["a", "b"] { #expect(try await texts(path, "answers/\(name)") == words(name, 400)) }
    #expect(try upstream.modelled(key).complete == 2)
    #expect(await daemon.stop() == 0)
  }

  @Test func anAnswerThatNobodyReadsIsForgotten() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template("words=400", "buffer = { events = 50 }\nforget = \"100ms\""))
    for name in ["a", "b"] { _ = try await http(path, "PUT", "/streams/answers/\(name)", body: name) }
    while try FileManager.default.contentsOfDirectory(atPath: daemon.state + "/requests").count > 0 {
      try await Task.sleep(for: .milliseconds(5))
    }
    #expect(try await http(path, "GET", "/streams/answers/a", ["Accept: text/event-stream"]).status == 404)
    #expect(await daemon.stop() == 0)
  }

  @Test func aRestartCutsAnAnswerOffAndMakesTheRequestsThatWait() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    let configuration = template("hold=2", "running = 1")
    try await daemon.start(configuration)
    for name in ["a", "b"] { _ = try await http(path, "PUT", "/streams/answers/\(name)", body: name) }
    let last = try #require(try await daemon.events(2, of: "answers/a").last?.id)
    #expect(await daemon.stop() == 0)
    _ = try upstream.text("/release/\(key)")
    try await daemon.start(configuration)
    let failure = await failure(path, "answers/a")
    #expect(failure?.contains("cut off by a restart after event \(last)") == true, "\(failure ?? "")")
    #expect(try await texts(path, "answers/b") == words("b"))
    #expect(try upstream.modelled(key).requests == ["a": 1, "b": 1])
    #expect(await daemon.stop() == 0)
  }

  @Test func whatCannotBeStoredIsNotAsked() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template(keep: "no"), state: "/proc/nowhere")
    let refused = try await http(path, "PUT", "/streams/answers/a", body: "a")
    #expect(refused.status == 503 && refused.body.contains("urn:streamd:not-kept"), "\(refused)")
    #expect(try await http(path, "GET", "/streams/answers/a").status == 404)
    #expect(try upstream.modelled(key).requests == [:])
    #expect(await daemon.stop() == 0)
  }

  /// The file of a request does not fit: nothing of it is left, and a smaller one is made.
  @Test func aFullDiskRefusesARequestAndKeepsNothingOfIt() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template(keep: "no"))
    func limitFiles(to size: String) async throws {
      let program = try ChildProcess("prlimit", ["--pid", "\(daemon.id ?? 0)", "--fsize=\(size)"])
      #expect(await program.end() == 0)
    }
    try await limitFiles(to: "200000:unlimited")
    let refused = try await http(
      path, "PUT", "/streams/answers/a", body: String(repeating: "x", count: 400_000))
    #expect(refused.status == 503 && refused.body.contains("urn:streamd:not-kept"), "\(refused)")
    #expect(refused.body.contains("the request cannot be stored: write ") && refused.body.contains("File too large"))
    #expect(try await http(path, "GET", "/streams/answers/a").status == 404)
    #expect(try FileManager.default.contentsOfDirectory(atPath: daemon.state + "/requests") == [])
    #expect(try upstream.modelled(key).requests == [:])
    try await limitFiles(to: "unlimited")
    #expect(try await http(path, "PUT", "/streams/answers/a", body: "a").status == 201)
    #expect(try await texts(path, "answers/a") == words("a"))
    #expect(await daemon.stop() == 0)
  }

  /// Over TCP without a token, nobody could read the answer.
  @Test func whoCannotReadTheAnswerAsksNothing() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let address = uniqueAddress()
    try await daemon.start("listen = [\"\(address)\"]\n" + template())
    let curl = try ChildProcess(
      "curl", ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-d", "a", "http://\(address)/streams/answers/"])
    #expect(await curl.text(of: curl.output) == "403")
    _ = await curl.end()
    #expect(try upstream.modelled(key).requests == [:])
    #expect(await daemon.stop() == 0)
  }

  /// A reader stays over a restart, and is told once.
  @Test func aReaderIsToldOnceThatARestartHasCutItsAnswerOff() async throws {
    let daemon = try RestartedDaemon()
    let path = daemon.folder.path("s")
    try daemon.makeListener()
    let configuration = template("hold=2", keep: "memory")
    try await daemon.start(configuration)
    #expect(try await http(path, "PUT", "/streams/answers/a", body: "a").status == 201)
    let connection = try StreamConnection(socket: path)
    defer { connection.close() }
    var events = connection.stream("answers/a").values.makeAsyncIterator()
    var last: UInt64 = 0
    for _ in 0..<2 { last = try await events.next()?.id ?? 0 }
    async let response = http(path, "GET", "/streams/answers/a", ["Accept: text/event-stream"])
    try await Task.sleep(for: .milliseconds(100))
    daemon.signal(SIGTERM)
    #expect(try await daemon.end() == 0)
    _ = try upstream.text("/release/\(key)")
    try await daemon.start(configuration)
    let sentence = "cut off by a restart after event \(last)"
    do {
      _ = try await events.next()
      Issue.record("it goes on")
    } catch { #expect("\(error)".contains(sentence), "\(error)") }
    let body = try await response.body
    #expect(words(in: body) == words("a", 2) && body.ranges(of: sentence).count == 1, "\(body)")
    #expect(try upstream.modelled(key).requests == ["a": 1])
    #expect(await daemon.stop() == 0)
  }

  @Test func aReloadLeavesAnAnswerThatComesAsItIs() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template("hold=2", "running = 1"))
    for name in ["a", "b"] { _ = try await http(path, "PUT", "/streams/answers/\(name)", body: name) }
    _ = try await daemon.events(2, of: "answers/a")
    try await daemon.reload(template("hold=2&x=1", "running = 1", http: ", timeout = \"20s\""))
    _ = try upstream.text("/release/\(key)")
    for name in ["a", "b"] { #expect(try await texts(path, "answers/\(name)") == words(name)) }
    #expect(try upstream.modelled(key).requests == ["a": 1, "b": 1])
    // Without its template it is gone.
    try await daemon.reload("[streams.s]\npublish = true")
    #expect(try await http(path, "GET", "/streams/answers/a").status == 404)
    while try !FileManager.default.contentsOfDirectory(atPath: daemon.state + "/requests").isEmpty {
      try await Task.sleep(for: .milliseconds(5))
    }
    #expect(await daemon.stop() == 0)
  }

  @Test func clientsOfRSocketAskAsWell() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template())
    let connection = try StreamConnection(socket: path)
    defer { connection.close() }
    #expect(try await connection.request("answers/a", Array("a".utf8)) == "answers/a")
    #expect(try await connection.request("answers/a", Array("a".utf8)) == "answers/a")
    for name in ["answers", "answers/"] {
      let made = try await connection.request(name, Array("b".utf8))
      #expect(made.hasPrefix("answers/") && made.utf8.count == 34)
      #expect(try await texts(path, made) == words("b"))
    }
    func reason(_ name: String, _ body: String) async -> FailureReason? {
      do throws(StreamError) {
        _ = try await connection.request(name, Array(body.utf8))
        return nil
      } catch { return error.reason }
    }
    #expect(await reason("answers/a", "other") == .otherRequest)
    #expect(await reason("nothing", "a") == .noStream)
    #expect(try await texts(path, "answers/a") == words("a"))
    #expect(try await connection.value(of: "answers/a").value.data == Array("[DONE]".utf8))
    let program = try ChildProcess(ChildProcess.built("streamctl"), ["--socket", path, "request", "answers/c", "c"])
    #expect(await program.text(of: program.output) == "answers/c\n")
    #expect(await program.end() == 0)
    #expect(try await texts(path, "answers/c") == words("c"))
    #expect(try upstream.modelled(key).requests == ["a": 1, "b": 2, "c": 1])
    #expect(await daemon.stop() == 0)
  }

  @Test func othersReadAnAnswerOnlyIfTheyMay() async throws {
    let daemon = try RestartedDaemon(hasManager: false)
    let path = daemon.folder.path("s")
    try await daemon.start(template())
    _ = try await http(path, "PUT", "/streams/answers/a", body: "a")
    #expect(chmod(daemon.folder.path("s"), 0o777) == 0 && chmod(daemon.folder.path, 0o755) == 0)
    let other = try ChildProcess(
      "setpriv",
      ["--reuid=65534", "--clear-groups", ChildProcess.built("streamctl"), "--socket", path, "sub", "answers/a"])
    let (output, errors) = (await other.text(of: other.output), await other.text(of: other.errors))
    #expect(output.isEmpty && errors.contains("may not read"), "\(errors)")
    _ = await other.end()
    #expect(await daemon.stop() == 0)
  }
}

/// A response, read to the end of its connection.
struct SocketResponse: CustomStringConvertible {
  var status = 0
  var head = ""
  var body = ""
  /// Whether a chunked body has its last chunk.
  var isComplete = true

  func field(_ name: String) -> String? {
    head.split(separator: "\r\n").first { $0.lowercased().hasPrefix(name + ":") }.map {
      String($0.dropFirst(name.count + 1).drop { $0 == " " })
    }
  }

  var description: String { "\(head)\n\(body.prefix(1000))" }
}

/// A request over a socket, on a connection of its own.
func http(
  _ path: String, _ method: String, _ target: String, _ fields: [String] = [], body: String? = nil
) async throws -> SocketResponse {
  var request = "\(method) \(target) HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
  for field in fields { request += field + "\r\n" }
  if let body { request += "Content-Length: \(body.utf8.count)\r\n" }
  let bytes = Array((request + "\r\n" + (body ?? "")).utf8)
  return try await Task.detached {
    let socket = try UnixSocket.connect(to: path)
    _ = fcntl(socket.raw, F_SETFL, fcntl(socket.raw, F_GETFL) & ~O_NONBLOCK)
    guard send(socket.raw, bytes, bytes.count, CInt(MSG_NOSIGNAL)) == bytes.count else {
      throw SystemError("send")
    }
    var received: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65536)
    while case let count = recv(socket.raw, &buffer, buffer.count, 0), count > 0 { received += buffer[..<count] }
    return SocketResponse(String(decoding: received, as: UTF8.self))
  }.value
}

extension SocketResponse {
  fileprivate init(_ text: String) {
    guard let end = text.firstRange(of: "\r\n\r\n") else { return }
    head = String(text[..<end.lowerBound])
    status = Int(head.split(separator: " ").dropFirst().first ?? "") ?? 0
    body = String(text[end.upperBound...])
    guard field("transfer-encoding") == "chunked" else { return }
    var (rest, whole) = (Array(body.utf8)[...], [UInt8]())
    isComplete = false
    while let line = rest.firstIndex(of: 0x0D),
      let size = Int(String(decoding: rest[..<line], as: UTF8.self), radix: 16)
    {
      guard size > 0, line + 2 + size + 2 <= rest.endIndex else {
        isComplete = size == 0
        break
      }
      whole += rest[line + 2..<line + 2 + size]
      rest = rest[(line + 2 + size + 2)...]
    }
    body = String(decoding: whole, as: UTF8.self)
  }
}
