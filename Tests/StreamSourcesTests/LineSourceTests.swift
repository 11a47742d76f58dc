import CLinux
import Glibc
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct LineSourceTests {
  let folder: TemporaryFolder
  let reports = Shared<[SourceReport]>([])

  init() throws { folder = try TemporaryFolder() }

  private func source(
    _ place: LinePlace, on thread: SourceThread, restTime: Duration = LineSource.restTime,
    _ change: (inout LineConfiguration) -> Void = { _ in }
  ) -> Source<LineSource> {
    var configuration = LineConfiguration(place)
    configuration.retry = Backoff(first: .milliseconds(1), max: .milliseconds(2))
    change(&configuration)
    return LineSource(configuration, restTime: restTime).source(on: thread) { [reports] report in
      reports.withLock { $0.append(report) }
    }
  }

  private var sentences: [String] {
    reports.withLock { $0.compactMap { if case .failing(let sentence, _, _) = $0 { sentence } else { nil } } }
  }

  private var losses: [String] {
    reports.withLock { $0.compactMap { if case .lost(let what, let count) = $0 { "\(count) \(what)" } else { nil } } }
  }

  private func until(_ condition: () async throws -> Bool) async throws {
    guard try await eventually(condition) else { throw SourceFailure("hangs") }
  }

  /// The first failure of a source.
  private func failure(
    _ place: LinePlace, _ change: @Sendable (inout LineConfiguration) -> Void = { _ in }
  ) async throws -> String? {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(place, on: thread, change).subscribe(taker)
      try await until { !sentences.isEmpty }
      taker.cancel()
      return sentences.first
    }
  }

  private func unixListener() throws -> LineListener {
    LineListener(try UnixSocket.listen(at: folder.path("s"), mode: 0o600))
  }

  private var unix: LinePlace { .unix(folder.path("s")) }

  @Test func aTelnetServersOptionsAreRefusedAndNoPartOfLines() async throws {
    let listener = try unixListener()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread) { $0.isTelnet = true }.subscribe(taker)
      let peer = try await listener.accept()
      try await peer.send([255, 253, 24, 255, 251, 1, 0x31, 255, 241, 0x32, 255, 253, 24, 13, 10])
      #expect(await taker.next(1) == ["12"])
      #expect(try await peer.receiveBytes(6) == [255, 252, 24, 255, 254, 1])
      taker.cancel()
    }
  }

  @Test func linesOfAUnixSocketAreEventsAndTheLastOneWithoutItsEndToo() async throws {
    let listener = try unixListener()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread).subscribe(taker)
      var peer: LinePeer? = try await listener.accept()
      try await peer?.send("one\r\n\ntw")
      #expect(await taker.next(1) == ["one"])
      try await peer?.send("o\nthree")
      #expect(await taker.next(1) == ["two"])
      peer = nil
      #expect(await taker.next(1) == ["three"])
      let second = try await listener.accept()
      try await second.send("four\n")
      #expect(await taker.next(1) == ["four"])
      taker.cancel()
      try await second.waitForEnd()
      #expect(sentences.isEmpty, "\(sentences)")
    }
  }

  @Test func nothingIsConnectedWithoutDemandAndNothingReadThen() async throws {
    let listener = try unixListener()
    try await withSourceThread { thread in
      let taker = Taker(.none)
      source(unix, on: thread, restTime: .seconds(1000)).subscribe(taker)
      try await Task.sleep(for: .milliseconds(30))
      #expect(!listener.hasConnection)
      taker.request(.max(1))
      let peer = try await listener.accept()
      try await peer.send("one\n")
      #expect(await taker.next(1) == ["one"])
      try await peer.send("two\n")
      try await Task.sleep(for: .milliseconds(30))
      #expect(taker.count == 1)
      taker.request(.max(1))
      #expect(await taker.next(1) == ["two"])
      taker.cancel()
    }
  }

  @Test func aConnectionIsClosedAfterATimeWithoutDemandAndMadeAgain() async throws {
    let listener = try unixListener()
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      source(unix, on: thread, restTime: .milliseconds(20)).subscribe(taker)
      let peer = try await listener.accept()
      try await peer.send("one\n")
      #expect(await taker.next(1) == ["one"])
      try await peer.waitForEnd()
      #expect(!listener.hasConnection)
      taker.request(.max(1))
      let second = try await listener.accept()
      try await second.send("two\n")
      #expect(await taker.next(1) == ["two"])
      taker.cancel()
      #expect(sentences.isEmpty, "\(sentences)")
    }
  }

  @Test func textsAreSentInOrderAfterEachOpeningWhateverTheirLength() async throws {
    let listener = try unixListener()
    let long = String(repeating: "x", count: 600_000)
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread) { $0.messages = ["hello\n", long] }.subscribe(taker)
      for _ in 0..<2 {
        let peer = try await listener.accept()
        #expect(try await peer.receive(600_006) == "hello\n" + long)
        try await peer.send("x\n")
        #expect(await taker.next(1) == ["x"])
      }
      taker.cancel()
    }
  }

  @Test func aLongLineIsLeftOutAndReportedAndTheNextOneIsWhole() async throws {
    let listener = try unixListener()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread) { $0.maximumEventBytes = 4 }.subscribe(taker)
      let peer = try await listener.accept()
      try await peer.send("12345\n1234\n" + String(repeating: "x", count: 200_000))
      #expect(await taker.next(1) == ["1234"])
      try await peer.send("x\nab\n")
      #expect(await taker.next(1) == ["ab"])
      try await peer.send("cd\n")
      #expect(await taker.next(1) == ["cd"])
      taker.cancel()
      let (lost, ends) = reports.withLock { reports in
        (
          reports.reduce(0) { if case .lost("a line over 4 B (max_body)", let count) = $1 { $0 + count } else { $0 } },
          reports.count { $0 == .complete }
        )
      }
      #expect(lost == 2 && ends == 1)
    }
  }

  @Test(arguments: [("a\nlonger\nb\n", 1), ("a\nlonger\n", 0), ("longer\nb\nlonger", 0)])
  func aLongLineIsOverWithTheNextOneOfTheSameRead(text: String, ends: Int) async throws {
    let listener = try unixListener()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread) { $0.maximumEventBytes = 4 }.subscribe(taker)
      try await listener.accept().send(text)
      _ = await taker.next(1)
      taker.cancel()
    }
    #expect(reports.withLock { $0.count { $0 == .complete } } == ends && !losses.isEmpty)
  }

  @Test func anIdleConnectionIsMadeAgainAndTheReasonReported() async throws {
    let listener = try unixListener()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread) { $0.idleTimeout = .milliseconds(50) }.subscribe(taker)
      let peer = try await listener.accept()
      try await peer.waitForEnd()
      _ = try await listener.accept()
      taker.cancel()
      #expect(sentences.first == "no data within 50 ms")
    }
  }

  @Test func aPlaceThatCannotBeReachedIsNamed() async throws {
    #expect(try await failure(unix) == "could not connect to \(folder.path("s")): No such file or directory")
    let address = uniqueAddress()
    let tcp = LinePlace.tcp(host: address.host, port: address.port, tls: nil)
    reports.withLock { $0 = [] }
    #expect(try await failure(tcp) == "could not connect to \(address): Connection refused")
    reports.withLock { $0 = [] }
    #expect(try await failure(.serial(SerialSettings(device: "/dev/null"))) == "/dev/null is not a serial port")
    reports.withLock { $0 = [] }
    #expect(
      try await failure(.serial(SerialSettings(device: folder.path("none"))))
        == "could not open \(folder.path("none")): No such file or directory")
  }

  @Test func aListenerThatClosesAtOnceIsAFailure() async throws {
    let listener = try unixListener()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread).subscribe(taker)
      _ = try await listener.accept()
      try await until { !sentences.isEmpty }
      #expect(sentences.first == "the connection ended without an event")
      taker.cancel()
    }
  }

  @Test func messagesOfAUnixSocketAreEventsAsTheyAre() async throws {
    let listener = try LineListener.messages(at: folder.path("s"))
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread) { ($0.hasLines, $0.maximumEventBytes) = (false, 5) }.subscribe(taker)
      let peer = try await listener.accept()
      try await peer.send("a\nb\n")
      #expect(await taker.next(1) == ["a\nb\n"])
      try await peer.send("123456")
      try await peer.send("12345")
      #expect(await taker.next(1) == ["12345"])
      #expect(losses == ["1 a message over 5 B (max_body)"])
      try await peer.send("")
      try await peer.send("x")
      #expect(await taker.next(1) == ["x"])
      taker.cancel()
      try await peer.waitForEnd()
      #expect(sentences.isEmpty)
    }
  }

  @Test func eachTextIsAMessageOfItsOwnAndAMessageOfLinesIsNoPartOfALineIfItIsLeftOut() async throws {
    let listener = try LineListener.messages(at: folder.path("s"))
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread) { $0.messages = ["first", "second"] }.subscribe(taker)
      let peer = try await listener.accept()
      #expect(try await peer.receive(10) == "first" + "secon")  // a message is cut to the room that is left
      let lines = (0..<20_000).map { "\($0)\n" }.joined()
      try await peer.send("one\nabc")
      #expect(await taker.next(1) == ["one"])
      try await peer.send(lines)
      #expect(await taker.next(1).first?.split(separator: "|").count == 20_000)
      try await peer.send("def\n")
      #expect(await taker.next(1) == ["def"])
      taker.cancel()
    }
  }

  @Test func aUnixSocketOfMessagesMayHaveLinesAndOneOfAStreamHasNoMessages() async throws {
    let listener = try LineListener.messages(at: folder.path("s"))
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread).subscribe(taker)
      let peer = try await listener.accept()
      try await peer.send("a\nb\n")
      #expect(await taker.next(1) == ["a|b"])
      taker.cancel()
    }
    let stream = LineListener(try UnixSocket.listen(at: folder.path("t"), mode: 0o600))
    #expect(
      try await failure(.unix(folder.path("t"))) { $0.hasLines = false }
        == "\(folder.path("t")) is no socket of messages (sequenced packets); use split = \"lines\"")
    #expect(!stream.hasConnection)
  }

  @Test func theLinesOfATCPConnectionAreEvents() async throws {
    let address = uniqueAddress()
    let listener = LineListener(try TCPSocket.listen(on: address))
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(.tcp(host: address.host, port: address.port, tls: nil), on: thread) { $0.messages = ["hello\n"] }
        .subscribe(taker)
      for _ in 0..<2 {
        let peer = try await listener.accept()
        #expect(try await peer.receive(6) == "hello\n")
        try await peer.send("one\ntwo")
        #expect(await taker.next(1) == ["one"])
        try await peer.send("\n")
        #expect(await taker.next(1) == ["two"])
      }
      taker.cancel()
      #expect(sentences.isEmpty, "\(sentences)")
    }
  }

  @Test func aFloodOverTCPIsReadAtThePaceOfDemand() async throws {
    let address = uniqueAddress()
    let listener = LineListener(try TCPSocket.listen(on: address))
    try await withSourceThread { thread in
      let taker = Taker(.max(1)) { _ in .max(1) }
      source(.tcp(host: address.host, port: address.port, tls: nil), on: thread).subscribe(taker)
      let peer = try await listener.accept()
      async let sent: Void = peer.send((0..<100_000).map { "\($0)\n" }.joined())
      var lines: [String] = []
      while lines.count < 100_000 {
        lines += try #require(await taker.next(1).first).split(separator: "|").map(String.init)
      }
      try await sent
      #expect(lines == (0..<100_000).map(String.init))
      taker.cancel()
    }
  }

  @Test func aConnectionWithTLSTrustsTheAuthorityAlone() async throws {
    let upstream = try Upstream.shared.get()
    let origin = try HTTPURL(upstream.trustedURL("/")).origin
    let (host, port) = (origin.host, try #require(UInt16(origin.port)))
    let trust = HTTPTrust(authorities: upstream.file("authority.pem"))
    let key = uniqueKey()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(.tcp(host: host, port: port, tls: trust), on: thread) {
        $0.messages = ["GET /count/\(key) HTTP/1.0\r\n\r\n"]
      }.subscribe(taker)
      let lines = await taker.next(1).joined(separator: "|")
      #expect(lines.hasPrefix("HTTP/1.1 200 OK"), "\(lines)")
      taker.cancel()
    }
    let sentence = try await failure(.tcp(host: host, port: port, tls: HTTPTrust()))
    let expected = "TLS with \(origin.authority) failed: SSL certificate problem: "
    #expect(sentence?.hasPrefix(expected) == true, "\(sentence ?? "")")
  }

  @Test func theNameInACertificateMayBeAnother() async throws {
    let upstream = try Upstream.shared.get()
    let origin = try HTTPURL(upstream.trustedURL("/")).origin
    let (host, port) = (origin.host, try #require(UInt16(origin.port)))
    func trust(_ name: String) -> HTTPTrust { HTTPTrust(authorities: upstream.file("authority.pem"), serverName: name) }
    let key = uniqueKey()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(.tcp(host: host, port: port, tls: trust("device.test")), on: thread) {
        $0.messages = ["GET /count/\(key) HTTP/1.0\r\n\r\n"]
      }.subscribe(taker)
      #expect(await taker.next(1)[0].hasPrefix("HTTP/1.1 200 OK"))
      taker.cancel()
      let name = try await thread.lastHeaders(key, at: upstream)["sni"]
      #expect(name == "device.test")
    }
    let sentence = try await failure(.tcp(host: host, port: port, tls: trust("other.test")))
    #expect(sentence?.contains("other.test") == true, "\(sentence ?? "")")
  }

  @Test func bytesWithoutALineEndAreReportedUntilOneComes() async throws {
    let listener = try unixListener()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread).subscribe(taker)
      let peer = try await listener.accept()
      try await peer.send(String(repeating: "12.5\r", count: 400))
      let waiting = SourceReport.waiting(
        "more than 1 KiB came without a line end: lines that end with CR need end = \"cr\"")
      try await until { reports.withLock { $0.contains(waiting) } }
      try await peer.send("\n")
      _ = await taker.next(1)
      try await until { reports.withLock { $0.last } == .recovered(afterFailures: 0) }
      taker.cancel()
    }
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(unix, on: thread) { $0.lineEnd = LineEnd("cr") ?? .automatic }.subscribe(taker)
      let peer = try await listener.accept()
      try await peer.send("12.5\r13")
      #expect(await taker.next(1) == ["12.5"])
      taker.cancel()
    }
  }

  /// A sensor may have either kind of address.
  @Test func datagramsOfIPv4ArriveAtTheAddressOfAll() async throws {
    var free: InternetAddress?
    do {  // other tests have the unique addresses' port
      let socket = OwnedDescriptor(Glibc.socket(AF_INET, CInt(SOCK_DGRAM.rawValue), 0))
      var any = sockaddr_in()
      any.sin_family = sa_family_t(AF_INET)
      withUnsafePointer(to: &any) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
          _ = bind(socket.raw, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
        }
      }
      free = SocketName.text(of: socket.raw).flatMap { InternetAddress($0) }
    }
    let port = try #require(free?.port)
    let (all, target) = (
      try #require(InternetAddress("[::]:\(port)")), try #require(InternetAddress("127.0.0.1:\(port)"))
    )
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(.udp(all), on: thread) { $0.hasLines = false }.subscribe(taker)
      let sender = try DatagramSender(to: target)
      try await until {
        sender.send("a")
        return taker.count > 0
      }
      taker.cancel()
    }
  }

  @Test func aDatagramIsAnEventAndALongOneIsLeftOut() async throws {
    let address = uniqueAddress()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(.udp(address), on: thread) { ($0.hasLines, $0.maximumEventBytes) = (false, 10) }.subscribe(taker)
      let sender = try DatagramSender(to: address)
      try await until {
        sender.send("a\nb\n")
        return taker.count > 0
      }
      sender.send(String(repeating: "x", count: 60_000))
      sender.send("")
      sender.send("last")
      var events: [String] = []
      while !events.contains("last") {
        events += await taker.next(1).flatMap { $0.split(separator: "|").map(String.init) }
      }
      #expect(Set(events) == ["a\nb\n", "last"])
      #expect(losses == ["1 a message over 10 B (max_body)"])
      taker.cancel()
    }
  }

  @Test func datagramsThatTheSystemDropsAreCounted() async throws {
    let address = uniqueAddress()
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      source(.udp(address), on: thread) { $0.hasLines = false }.subscribe(taker)
      let sender = try DatagramSender(to: address)
      try await until {
        sender.send("first")
        return taker.count > 0
      }
      for _ in 0..<20_000 { sender.send(String(repeating: "x", count: 1000)) }
      taker.request(.unlimited)
      try await until {
        sender.send("more")
        return !losses.isEmpty
      }
      #expect(
        losses.first?.hasSuffix("the system has dropped datagrams, which came faster than they were read") == true)
      taker.cancel()
    }
  }

  @Test func theSettingsOfASerialPortReturnWhenItIsClosed() async throws {
    let line = try SerialLine()
    let before = try line.settings()
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      var settings = SerialSettings(device: line.path)
      (settings.baud, settings.stopBits, settings.flow) = (115_200, 2, .software)
      source(.serial(settings), on: thread) { $0.messages = ["start\n"] }.subscribe(taker)
      #expect(try await line.peer.receive(6) == "start\n")
      try await line.peer.send("1 2\r\n3\u{4}4\n")  // an end of file in cooked mode
      #expect(await taker.next(1) == ["1 2|3\u{4}4"])
      let during = try line.settings()
      #expect(cfgetspeed(during) == speed_t(B115200))
      #expect(during.c_cflag & tcflag_t(CSTOPB) != 0 && during.c_lflag & tcflag_t(ICANON | ECHO) == 0)
      #expect(during.c_iflag & tcflag_t(IXON) != 0 && during.c_iflag & tcflag_t(IGNBRK) == 0)
      taker.cancel()
    }
    let after = try line.settings()
    #expect(after.c_cflag == before.c_cflag && after.c_lflag == before.c_lflag && after.c_iflag == before.c_iflag)
    #expect(sentences.isEmpty, "\(sentences)")
  }

  @Test func aSerialPortThatAnotherProgramHasIsNotOpened() async throws {
    let line = try SerialLine()
    let other = open(line.path, O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
    #expect(flock(other, LOCK_EX | LOCK_NB) == 0)
    #expect(
      try await failure(.serial(SerialSettings(device: line.path)))
        == "\(line.path) is in use by another stream or program")
    close(other)
  }

  @Test func anUnpluggedSerialPortIsAFailureAndPluggedInAgainARecovery() async throws {
    let link = folder.path("tty")
    var line: SerialLine? = try SerialLine()
    symlink(line?.path ?? "", link)
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      source(.serial(SerialSettings(device: link)), on: thread) { $0.messages = ["x"] }.subscribe(taker)
      _ = try await line?.peer.receive(1)
      try await line?.peer.send("one\n")
      #expect(await taker.next(1) == ["one"])
      unlink(link)
      line = nil
      try await until { sentences.contains { $0.contains("unplugged") } }
      try await until { sentences.contains("could not open \(link): No such file or directory") }
      let second = try SerialLine()
      symlink(second.path, link)
      _ = try await second.peer.receive(1)
      try await second.peer.send("two\n")
      #expect(await taker.next(1) == ["two"])
      #expect(reports.withLock { $0.contains { if case .recovered = $0 { true } else { false } } })
      taker.cancel()
    }
  }
}

/// Sends datagrams.
private final class DatagramSender: Sendable {
  private let socket: OwnedDescriptor

  init(to address: InternetAddress) throws {
    let socket = Glibc.socket(AF_INET, CInt(SOCK_DGRAM.rawValue), 0)
    self.socket = OwnedDescriptor(socket)
    var target = sockaddr_in()
    (target.sin_family, target.sin_port) = (sa_family_t(AF_INET), address.port.bigEndian)
    inet_pton(AF_INET, address.host, &target.sin_addr)
    let isConnected = withUnsafePointer(to: &target) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
      }
    }
    guard isConnected else { throw SystemError("connect", address.description) }
  }

  /// It is lost if nobody receives.
  func send(_ text: String) {
    Array(text.utf8).withUnsafeBytes { _ = Glibc.send(socket.raw, $0.baseAddress, $0.count, 0) }
  }
}

private func cfgetspeed(_ settings: termios) -> speed_t { withUnsafePointer(to: settings) { cfgetispeed($0) } }
