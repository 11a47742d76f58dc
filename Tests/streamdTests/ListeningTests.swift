import Glibc
import StreamClient
import StreamRuntime
import TestSupport
import Testing

@testable import streamd

/// A client that sends bytes over TCP, and reads what comes.
struct TCPClient: ~Copyable {
  let socket: OwnedDescriptor

  init(_ address: InternetAddress) throws {
    socket = try TCPSocket.connect(to: address)
    _ = fcntl(socket.raw, F_SETFL, 0)
  }

  func send(_ bytes: [UInt8]) { _ = Glibc.send(socket.raw, bytes, bytes.count, CInt(MSG_NOSIGNAL)) }

  func request(_ method: String, _ target: String, _ fields: String = "", body: String = "") {
    let length = method == "POST" ? "Content-Length: \(body.utf8.count)\r\n" : ""
    send(Array("\(method) \(target) HTTP/1.1\r\nHost: localhost\r\n\(fields)\(length)\r\n\(body)".utf8))
  }

  /// What comes until it ends with `end`, or the connection ends.
  func read(through end: String = "\r\n\r\n") -> String {
    let end = Array(end.utf8)
    var text: [UInt8] = []
    var examined = 0
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {
      let places = examined..<max(examined, text.count - end.count + 1)
      if places.contains(where: { text[$0..<$0 + end.count].elementsEqual(end) }) { break }
      examined = places.upperBound
      var ready = pollfd(fd: socket.raw, events: Int16(POLLIN), revents: 0)
      guard poll(&ready, 1, CInt(hangTime.wholeMilliseconds)) == 1 else { break }
      let count = recv(socket.raw, &buffer, buffer.count, 0)
      guard count > 0 else { break }
      text += buffer[..<count]
    }
    return String(decoding: text, as: UTF8.self)
  }
}

/// The status of a response to a GET over TCP.
func status(_ address: InternetAddress, _ target: String = "/healthz", _ fields: String = "") throws -> String {
  let client = try TCPClient(address)
  client.request("GET", target, fields)
  return String(client.read().dropFirst(9).prefix(3))
}

@Suite(.timeLimit(.minutes(10))) struct ListeningTests {
  @Test(arguments: [("none/s", "none"), ("none/below/s", "none")])
  func aSocketInADirectoryThatIsMissingIsRefusedWithItsNameAndTheKey(name: String, missing: String) throws {
    let folder = try TemporaryFolder()
    do {
      _ = try ListeningSockets.listen(at: folder.path(name), mode: 0o600).raw
      Issue.record("it listens")
    } catch {
      #expect(
        "\(error)" == "cannot listen on \(folder.path(name)) (server.socket): "
          + "the directory \(folder.path(missing)) does not exist")
    }
  }

  @Test func aSocketInUseIsRefusedWithTheReason() throws {
    let folder = try TemporaryFolder()
    mkdir(folder.path("d"), 0o700)
    close(open(folder.path("f"), O_CREAT | O_WRONLY, 0o600))
    let served = try UnixSocket.listen(at: folder.path("s"), mode: 0o600)
    for (name, reason) in [
      ("d", "it is a directory"), ("f", "it is not a socket"), ("s", "another process listens on it"),
    ] {
      let path = folder.path(name)
      do {
        _ = try ListeningSockets.listen(at: path, mode: 0o600).raw
        Issue.record("\(name) was replaced")
      } catch {
        #expect("\(error)" == "cannot listen on \(path): \(reason)")
      }
    }
    _ = served.raw
  }

  private let ticks = keptStream("ticks", keep: "memory")

  /// That of its socket in the manager.
  private func name(of address: InternetAddress) -> String {
    "kept-listen-" + address.description.replacing(":", with: "_")
  }

  @Test func otherMachinesAreServedOnlyWithNamesAndWithRulesForEachStream() throws {
    let server = "[server]\nlisten = [\"0.0.0.0:7878\"]\nhosts = [\"streamd\"]\n"
    let open = "[streams.a]\npublish = true\nread = [\"*\"]\n"
    #expect(try parse(server + open).server.listen.map(\.description) == ["0.0.0.0:7878"])
    #expect(
      errors(server + open + "[streams.b]\npublish = true\n") == [
        "test.toml:7: streams.b: expected read, such as read = [\"*\"] for all, as server.listen has \"0.0.0.0:7878\", "
          + "which other machines reach"
      ])
    #expect(errors("[server]\nlisten = [\"127.0.0.1:1\", \"[::1]:1\"]\n[streams.b]\npublish = true\n") == [])
  }

  @Test func clientsAreServedOverTCP() async throws {
    let address = uniqueAddress()
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start("listen = [\"\(address)\"]\n" + ticks)
    #expect(try await daemon.logs("serves 1 stream on \(daemon.folder.path("s")), \(address)"))
    #expect(try status(address) == "200")
    #expect(try await daemon.events(1, of: "ticks").count == 1)
    #expect(await daemon.stop() == 0)
  }

  @Test func anAddressInUseIsAFailureToStart() async throws {
    let address = uniqueAddress()
    let other = try TCPSocket.listen(on: address)
    let daemon = try RestartedDaemon(hasManager: false)
    #expect(try await daemon.startAndEnd("listen = [\"\(address)\"]\n" + ticks) == EX_OSERR)
    #expect(try await daemon.logs("streamd cannot start: cannot listen on \(address): another process listens on it\n"))
    #expect(other.raw >= 0)
  }

  @Test func aReloadOpensAndClosesOnlyWhatIsChanged() async throws {
    let (stays, goes, comes) = (uniqueAddress(), uniqueAddress(), uniqueAddress())
    let daemon = try RestartedDaemon()
    try await daemon.start("listen = [\"\(stays)\", \"\(goes)\"]\n" + ticks)
    let client = try TCPClient(goes)
    client.request("GET", "/healthz")
    #expect(client.read(through: "ok\n").hasSuffix("ok\n"))
    try await daemon.eventually("the manager has the sockets") {
      let kept = daemon.manager?.kept.map(\.name) ?? []
      return [stays, goes].allSatisfy { kept.contains(name(of: $0)) }
    }
    // As a manager that has not removed its own yet: who connects there must not wait in its queue.
    let copy = dup(try #require(daemon.manager?.kept.first { $0.name == name(of: goes) }?.descriptor))
    defer { close(copy) }
    try await daemon.reload("listen = [\"\(comes)\", \"\(stays)\"]\n" + ticks)
    #expect(!daemon.log.contains("takes effect after a restart"))
    #expect(try status(stays) == "200" && status(comes) == "200")
    #expect(try status(goes) == "")
    client.request("GET", "/healthz")
    #expect(client.read(through: "ok\n").hasSuffix("ok\n"), "a connection stays")
    let names = [stays, comes].map(name)
    try await daemon.eventually("the manager has the present ones") {
      Set(daemon.manager?.kept.map(\.name).filter { $0.hasPrefix("kept-listen-") } ?? []) == Set(names)
    }
    #expect(await daemon.stop() == 0)
  }

  @Test func aReloadChangesTheNamesAndTheLimitsOfClients() async throws {
    let address = uniqueAddress()
    let daemon = try RestartedDaemon(hasManager: false)
    let listen = "listen = [\"\(address)\"]\n"
    try await daemon.start(listen + "hosts = [\"streams.example.org\"]\n" + ticks)
    func statuses() throws -> [String] {
      try ["streams.example.org", "other.example.org"].map { host in
        let client = try TCPClient(address)
        client.send(Array("GET /healthz HTTP/1.1\r\nHost: \(host)\r\n\r\n".utf8))
        return String(client.read(through: "\r\n").dropFirst(9).prefix(3))
      }
    }
    #expect(try statuses() == ["200", "403"])
    let open = try TCPClient(address)
    open.request("GET", "/healthz")
    #expect(open.read(through: "ok\n").hasSuffix("ok\n"))
    let changed = listen + "hosts = [\"other.example.org\"]\n"
    try await daemon.reload(changed + ticks)
    #expect(try statuses() == ["403", "200"])
    for _ in 0..<2 { try await daemon.reload(changed + "max_connections = 1\n" + ticks) }
    #expect(try status(address) == "503")
    open.request("GET", "/healthz")
    #expect(open.read(through: "ok\n").hasSuffix("ok\n"), "a connection stays")
    let entries = daemon.log.split(separator: "\n").filter { $0.contains("configuration reloaded: ") }
    #expect(
      entries.map { $0.split(separator: ";").dropFirst().first } == [" server.hosts", " server.max_connections", nil])
    #expect(!daemon.log.contains("takes effect after a restart"))
    #expect(await daemon.stop() == 0)
  }

  @Test func anAddressThatCannotBeHadLeavesTheOthersAsTheyAre() async throws {
    let (stays, comes, taken) = (uniqueAddress(), uniqueAddress(), uniqueAddress())
    let other = try TCPSocket.listen(on: taken)
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start("listen = [\"\(stays)\"]\n" + ticks)
    try await daemon.reload("listen = [\"\(comes)\", \"\(taken)\"]\n" + ticks)
    #expect(
      try await daemon.logs(
        "not reloaded: \(daemon.folder.path("streamd.toml")): server.listen: cannot listen on \(taken)"))
    #expect(try status(stays) == "200" && status(comes) == "")
    #expect(other.raw >= 0)
    #expect(await daemon.stop() == 0)
  }

  @Test(arguments: [SIGTERM, SIGKILL]) func clientsThatConnectDuringARestartAreServed(_ signal: CInt) async throws {
    let (address, former) = (uniqueAddress(), uniqueAddress())
    let daemon = try RestartedDaemon()
    try daemon.makeListener()
    try await daemon.start("listen = [\"\(address)\", \"\(former)\"]\n" + ticks)
    let before = try TCPClient(address)
    before.request("GET", "/streams/ticks?as=ndjson")
    #expect(before.read(through: "}\n").hasPrefix("HTTP/1.1 200"))
    try await daemon.eventually("the manager has the sockets") {
      daemon.manager?.kept.count { $0.name.hasPrefix("kept-listen-") } == 2
    }
    let copy = dup(try #require(daemon.manager?.kept.first { $0.name == name(of: former) }?.descriptor))
    defer { close(copy) }
    daemon.signal(signal)
    _ = try await daemon.end()
    let between = try TCPClient(address)
    between.request("GET", "/healthz")
    try await daemon.start("listen = [\"\(address)\"]\n" + ticks)
    #expect(between.read(through: "ok\n").hasSuffix("ok\n"))
    #expect(try status(former) == "")
    if signal == SIGTERM {
      #expect(try await daemon.logs("1 connection restored") && before.read(through: "}\n") != "")
    }
    #expect(await daemon.stop() == 0)
  }
}
