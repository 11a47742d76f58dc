import Dispatch
import Glibc
import Synchronization
import TestSupport
import Testing

@testable import Systemd

/// The environment belongs to the process, so code that reads it runs in a child process.
struct ServiceManagerTests {
  @Test func notificationsOfOneCallAreOneMessage() async {
    await #expect(processExitsWith: .success) {
      let far = try NotifySocket()
      let manager = ServiceManager()
      #expect(manager.isPresent)
      manager.notify(.ready, .status("serving 3 streams"))
      manager.notify(.watchdog)
      manager.notify(.stopping, .extendTimeout(.milliseconds(1500)))
      #expect(far.receive() == "READY=1\nSTATUS=serving 3 streams")
      #expect(far.receive() == "WATCHDOG=1")
      #expect(far.receive() == "STOPPING=1\nEXTEND_TIMEOUT_USEC=1500000")
      #expect(manager.flush(within: .seconds(60)))
    }
  }

  @Test func aStoredDescriptorStaysInTheManagerUntilItsNameIsRemoved() async {  // row 32
    await #expect(processExitsWith: .success) {
      let folder = try TemporaryFolder()
      let far = try FakeManager(path: folder.path("notify"))
      setenv("NOTIFY_SOCKET", far.path, 1)
      setenv("FDSTORE", "5", 1)
      let manager = ServiceManager()
      #expect(manager.storeLimit == 5)
      for name in ["log-1", "log-2"] {
        let file = open(folder.path(name), O_CREAT | O_RDWR, 0o600)
        write(file, name, 5)
        manager.store(file, as: name)
        close(file)  // the manager's copy is another one
      }
      manager.removeStored("log-1")
      manager.removeStored("log-9")
      #expect(manager.flush(within: .seconds(60)))
      #expect(far.receive() == "FDSTORE=1\nFDPOLL=0\nFDNAME=kept-log-1")
      #expect(far.kept.map(\.name) == ["kept-log-1"])
      #expect(far.receive() == "FDSTORE=1\nFDPOLL=0\nFDNAME=kept-log-2")
      #expect(far.receive() == "FDSTOREREMOVE=1\nFDNAME=kept-log-1")
      #expect(far.receive() == "FDSTOREREMOVE=1\nFDNAME=kept-log-9")
      #expect(far.kept.map(\.name) == ["kept-log-2"])
      var text = [UInt8](repeating: 0, count: 8)
      #expect(pread(far.kept.first?.descriptor ?? -1, &text, 8, 0) == 5 && text[4] == UInt8(ascii: "2"))
    }
  }

  @Test func nothingIsStoredIfTheManagerStoresNothing() async {
    await #expect(processExitsWith: .success) {
      let folder = try TemporaryFolder()
      let far = try FakeManager(path: folder.path("notify"))
      setenv("NOTIFY_SOCKET", far.path, 1)
      unsetenv("FDSTORE")
      let manager = ServiceManager()
      #expect(manager.storeLimit == 0)
      manager.store(STDERR_FILENO, as: "a")
      #expect(manager.flush(within: .seconds(60)))
      #expect(far.receive(waits: false) == nil)
    }
  }

  @Test func aManagerThatDoesNotReadDelaysNothing() async {  // row 34
    await #expect(processExitsWith: .success) {
      let far = try NotifySocket()
      let manager = ServiceManager()
      for _ in 0..<1000 { manager.notify(.status("xxxx")) }
      #expect(!manager.flush(within: .milliseconds(1)))
      #expect(far.receive()?.hasPrefix("STATUS=x") == true)
    }
  }

  @Test func aMissingManagerIsAccepted() async {  // row 34
    await #expect(processExitsWith: .success) {
      setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1)
      let manager = ServiceManager()
      manager.notify(.ready)
      #expect(manager.flush(within: .seconds(60)))
    }
  }

  @Test func withoutAManagerNothingIsSent() async {
    await #expect(processExitsWith: .success) {
      unsetenv("NOTIFY_SOCKET")
      unsetenv("WATCHDOG_USEC")
      let manager = ServiceManager()
      #expect(!manager.isPresent)
      #expect(manager.watchdogInterval == nil)
      manager.notify(.ready)
      #expect(manager.flush(within: .seconds(60)))
      #expect(manager.takeDescriptors() == PassedDescriptors([]))
    }
  }

  @Test func theWatchdogIntervalIsForThisProcessOnly() async {
    await #expect(processExitsWith: .success) {
      setenv("WATCHDOG_USEC", "20000000", 1)
      setenv("WATCHDOG_PID", "\(getpid())", 1)
      #expect(ServiceManager().watchdogInterval == .seconds(20))
      setenv("WATCHDOG_PID", "1", 1)
      #expect(ServiceManager().watchdogInterval == nil)
    }
  }

  @Test(arguments: ["", "DATA\r\nOK 0123456789abcdef0123456789abcdef\r\nAGREE_UNIX_FD\r\n"])
  func aHangingBusDelaysTheStopByASecond(answer: String) async {
    await #expect(processExitsWith: .success) { [answer = answer as String] in
      let folder = try TemporaryFolder()
      let bus = try HungBus(path: folder.path("bus"), answer: answer)
      setenv("NOTIFY_SOCKET", "/nonexistent/notify", 1)
      setenv("STREAMD_UNIT", "streamd.service", 1)
      for name in ["DBUS_SYSTEM_BUS_ADDRESS", "DBUS_SESSION_BUS_ADDRESS"] { setenv(name, "unix:path=\(bus.path)", 1) }
      let start = ContinuousClock.now
      #expect(ServiceManager().ending() == nil)
      let elapsed = ContinuousClock.now - start
      #expect(elapsed >= .seconds(1) && elapsed < .seconds(8), "\(elapsed)")  // the library's own limits begin at 25 s
      #expect(bus.heard.contains("AUTH EXTERNAL"))
    }
  }

  @Test func aReloadIsOneMessageWithItsTime() {
    let lines = ServiceManager.Notice.reloading.assignment.split(separator: "\n")
    #expect(lines.count == 2 && lines[0] == "RELOADING=1" && lines[1].hasPrefix("MONOTONIC_USEC="))
  }

  @Test func aStatusCannotContainAnotherAssignment() {
    #expect(
      ServiceManager.Notice.status("stream a\nMAINPID=1\r\u{1b}[2J é").assignment == "STATUS=stream a MAINPID=1  [2J é")
  }

  @Test func aNegativeExtensionIsZero() {
    #expect(ServiceManager.Notice.extendTimeout(.seconds(-1)).assignment == "EXTEND_TIMEOUT_USEC=0")
  }
}

/// A message bus that stops answering: after connecting, or after authentication.
private final class HungBus: Sendable {
  let path: String
  private let received = Mutex<[UInt8]>([])

  /// All that the client has sent.
  var heard: String { received.withLock { String(decoding: $0, as: UTF8.self) } }

  /// - Parameter answer: the reply to the first message.
  init(path: String, answer: String) throws {
    self.path = path
    let descriptor = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
    let result = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    guard result == 0, listen(descriptor, 1) == 0 else { throw Pipe.Failure(errorNumber: errno) }
    DispatchQueue(label: "bus").async { [self] in
      let client = accept(descriptor, nil, nil)
      var answer = answer
      var buffer = [UInt8](repeating: 0, count: 4096)
      while true {
        let count = read(client, &buffer, buffer.count)
        guard count > 0 else { return }
        received.withLock { $0 += buffer[..<count] }
        _ = write(client, answer, answer.utf8.count)
        answer = ""
      }
    }
  }
}

/// The service manager's end: a datagram socket, named in this process's NOTIFY_SOCKET.
private struct NotifySocket {
  struct Failure: Error { let errorNumber: CInt }

  private let descriptor: CInt

  init() throws {
    descriptor = socket(AF_UNIX, CInt(SOCK_DGRAM.rawValue), 0)
    let name = "streamd-test-\(getpid())"
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0[1...].copyBytes(from: name.utf8) }  // [0] stays 0: abstract
    let length = socklen_t(MemoryLayout<sa_family_t>.size + 1 + name.utf8.count)
    let result = withUnsafePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, length) }
    }
    guard result == 0 else { throw Failure(errorNumber: errno) }
    setenv("NOTIFY_SOCKET", "@" + name, 1)
  }

  /// Waits for the next message.
  func receive() -> String? {
    var buffer = [UInt8](repeating: 0, count: 65536)
    let count = recv(descriptor, &buffer, buffer.count, 0)
    return count < 0 ? nil : String(decoding: buffer[..<count], as: UTF8.self)
  }
}
