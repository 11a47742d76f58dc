import CLinux
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import StreamRuntime

/// A path in a separate folder that is removed with the test.
func withSocketPath<R>(_ body: (String) async throws -> R) async throws -> R {
  let folder = try TemporaryFolder()
  return try await body(folder.path("s"))
}

@Suite struct TCPSocketTests {
  @Test func anAddressHasOneText() {
    let same = ["127.0.0.1:7878": "127.0.0.1:7878", "127.0.0.1:07878": "127.0.0.1:7878", "[0:0:0::1]:1": "[::1]:1"]
    for (text, canonical) in same { #expect(InternetAddress(text)?.description == canonical) }
    for text in [
      "", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:+1", "127.1:80", "::1:80",
      "[::1]", "[::1]:", "[127.0.0.1]:80", "[]:80", "localhost:80", "[fe80::1%lo]:80", "[::ffff:127.0.0.1]:80",
      "127.0.0.1\0:80", "*:80",
    ] {
      #expect(InternetAddress(text) == nil, "\(text)")
    }
    let loopback = ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "0.0.0.0:1", "[::]:1", "192.0.2.1:1", "[2001:db8::1]:1"]
    #expect(loopback.map { InternetAddress($0)?.isLoopback } == [true, true, true, false, false, false, false])
  }

  /// No other process of the tests has the port of the one address of IPv6.
  @Test(arguments: ["\(uniqueAddress())", "[::1]:\(10_000 + getpid() % 20_000)"])
  func aServedAddressIsListenedOnOnce(_ text: String) throws {
    let address = try #require(InternetAddress(text))
    let first = try TCPSocket.listen(on: address)
    #expect(throws: SystemError("bind", text, code: EADDRINUSE)) { _ = try TCPSocket.listen(on: address).raw }
    let client = try TCPSocket.connect(to: address)
    // The former listener leaves, and another one takes its place without a moment between.
    let second = try TCPSocket.listen(on: address, inPlaceOf: [first.raw])
    #expect(fcntl(second.raw, F_GETFD) & FD_CLOEXEC != 0 && SocketName.text(of: second.raw) == text)
    #expect(client.raw != first.raw)
  }
}

@Suite struct UnixSocketTests {
  @Test func theSocketFileHasTheRequestedMode() async throws {
    try await withSocketPath { path in
      let listener = try UnixSocket.listen(at: path, mode: 0o660)
      var status = stat()
      stat(path, &status)
      #expect(status.st_mode & 0o777 == 0o660)
      _ = listener.raw
    }
  }

  @Test func aServedSocketIsNotReplaced() async throws {
    try await withSocketPath { path in
      let first = try UnixSocket.listen(at: path, mode: 0o600)
      #expect(throws: SystemError("bind", path, code: EADDRINUSE)) {
        _ = try UnixSocket.listen(at: path, mode: 0o600).raw
      }
      _ = first.raw
    }
  }

  @Test func anAbandonedSocketFileIsReplaced() async throws {
    try await withSocketPath { path in
      do { _ = try UnixSocket.listen(at: path, mode: 0o600) }
      let second = try UnixSocket.listen(at: path, mode: 0o600)
      let client = try UnixSocket.connect(to: path)
      #expect(client.raw != second.raw)
    }
  }

  @Test func aFileIsRemovedUnlessAnotherOneHasItsPath() async throws {
    try await withSocketPath { path in
      let file: UnixSocket.File?
      do {
        let first = try UnixSocket.listen(at: path, mode: 0o600)
        file = UnixSocket.File(at: path)
        _ = first.raw
      }
      let second = try UnixSocket.listen(at: path, mode: 0o600)
      file?.remove()
      #expect(file?.path == path)
      let client = try UnixSocket.connect(to: path)
      UnixSocket.File(at: path)?.remove()
      #expect(access(path, F_OK) != 0 && UnixSocket.File(at: path).map(\.path) == nil)
      #expect(client.raw != second.raw)
    }
  }

  @Test func aFileThatIsNotASocketIsNotReplaced() async throws {
    try await withSocketPath { path in
      close(open(path, O_CREAT | O_WRONLY, 0o600))
      #expect(throws: SystemError("bind", path, code: EADDRINUSE)) {
        _ = try UnixSocket.listen(at: path, mode: 0o600).raw
      }
      #expect(access(path, F_OK) == 0)
    }
  }

  @Test func aBoundSocketHasAName() async throws {
    try await withSocketPath { path in
      let listener = try UnixSocket.listen(at: path, mode: 0o600)
      #expect(SocketName.text(of: listener.raw) == path)
    }
    let internet = OwnedDescriptor(socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let bound = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(internet.raw, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    #expect(bound == 0)
    #expect(SocketName.text(of: internet.raw)?.hasPrefix("127.0.0.1:") == true)
    #expect(SocketName.text(of: -1) == nil)
  }

  @Test func aPathThatIsTooLongIsRefusedInTheMessage() {
    let path = "/tmp/" + String(repeating: "x", count: 200)
    #expect(throws: SystemError("socket path", path, code: ENAMETOOLONG)) {
      _ = try UnixSocket.connect(to: path).raw
    }
  }
}

@Suite struct ListenerTests {
  @Test func everyConnectionIsAcceptedOnce() async throws {
    try await withSocketPath { path in
      try await withRunningLoop { loop in
        let counter = Counter()
        let descriptor = try UnixSocket.listen(at: path, mode: 0o600).release()
        await loop.perform {
          let listener = Listener(
            OwnedDescriptor(descriptor), on: loop, accepted: { _ in counter.increment() }, paused: { _ in }
          )
          listener.start()
        }
        var clients: [CInt] = []
        for _ in 0..<500 { clients.append(try UnixSocket.connect(to: path).release()) }
        while counter.value < 500 { await Task.yield() }
        clients.forEach { close($0) }
        #expect(counter.value == 500)
      }
    }
  }

  /// A file, which no loop can watch, stands for a socket for which the kernel has no watch left.
  @Test func aListenerThatCannotBeWatchedIsTriedAgain() async throws {
    try await withSocketPath { path in
      let loop = try EventLoop(name: "test")
      let listening = try UnixSocket.listen(at: path, mode: 0o600)
      let client = try UnixSocket.connect(to: path)
      let unwatchable = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)
      var pauses: [CInt] = []
      var accepted = 0
      let listener = Listener(
        OwnedDescriptor(unwatchable), on: loop,
        accepted: { _ in
          accepted += 1
          loop.stop()
        }, paused: { pauses.append($0.code) })
      listener.start()
      #expect(pauses == [EPERM])
      #expect(dup2(listening.raw, unwatchable) == unwatchable)
      _ = fcntl(unwatchable, F_SETFL, O_NONBLOCK)
      _ = loop.schedule(after: .seconds(60)) { loop.stop() }
      loop.run()
      #expect(accepted == 1 && pauses == [EPERM])
      listener.stop()
      _ = client
    }
  }

  /// The limit belongs to the process, so this runs in a child process.
  @Test func aFullDescriptorTablePausesAcceptingAndIsReportedOnce() async throws {
    await #expect(processExitsWith: .success) {
      try await withSocketPath { path in
        let loop = try EventLoop(name: "test")
        let listening = try UnixSocket.listen(at: path, mode: 0o600)
        let client = try UnixSocket.connect(to: path)
        var limit = rlimit(rlim_cur: 0, rlim_max: 0)
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        let full = rlimit(rlim_cur: rlim_t(client.raw) + 1, rlim_max: limit.rlim_max)
        var pauses: [CInt] = []
        var accepted = 0
        let listener = Listener(
          listening, on: loop,
          accepted: { _ in
            accepted += 1
            loop.stop()
          }, paused: { pauses.append($0.code) })
        listener.start()
        withUnsafePointer(to: full) { _ = setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), $0) }
        var turns = 0
        loop.endOfTurn = {
          turns += 1
          return nil
        }
        // There is space again well before the retry: the retry finds it.
        _ = loop.schedule(after: .milliseconds(200)) {
          withUnsafePointer(to: limit) { _ = setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), $0) }
        }
        loop.run()
        precondition(accepted == 1 && pauses == [EMFILE] && turns < 10, "\(accepted) \(pauses) \(turns)")
      }
    }
  }
}

@Suite struct SignalTests {
  @Test func aSignalIsHandledOnTheLoop() async {
    await #expect(processExitsWith: .success) {
      let loop = try EventLoop(name: "test")
      var received: [CInt] = []
      let signals = try Signals([SIGTERM, SIGHUP], on: loop) { number in
        received.append(number)
        if received.count == 2 { loop.stop() }
      }
      pthread_kill(pthread_self(), SIGTERM)
      pthread_kill(pthread_self(), SIGHUP)
      loop.run()
      withExtendedLifetime(signals) {}
      precondition(received.sorted() == [SIGHUP, SIGTERM])
    }
  }
}
