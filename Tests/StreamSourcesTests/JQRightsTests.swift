import CLinux
import Events
import Glibc
import Reactive
import TestSupport
import Testing

@testable import StreamSources

/// The rights of the process that runs programs.
@Suite(.timeLimit(.minutes(10))) struct JQRightsTests {
  @Test func filesSocketsProcessesSignalsAndNewCodeAreDenied() async {
    await #expect(processExitsWith: .exitCode(7)) {
      let (parent, file) = (getppid(), open("/dev/null", O_RDWR))
      var ends: [CInt] = [0, 0]
      try JQWorker.confine()
      func isRefused(_ result: Int) -> Bool { result == -1 && errno == EPERM }
      var failures: [String] = []
      if !isRefused(Int(open("/etc/passwd", O_RDONLY))) { failures.append("open") }
      if !isRefused(Int(open("/dev/null", O_WRONLY))) { failures.append("open for writing") }
      if !isRefused(Int(socket(AF_UNIX, CInt(SOCK_STREAM.rawValue), 0))) { failures.append("socket") }
      if !isRefused(Int(socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0))) { failures.append("socket") }
      if !isRefused(Int(pipe2(&ends, 0))) { failures.append("pipe") }
      if !isRefused(Int(dup(0))) { failures.append("dup") }
      if !isRefused(Int(kill(parent, 0))) { failures.append("kill") }
      if !isRefused(write(file, "x", 1)) { failures.append("write to another descriptor") }
      var child = pid_t()
      if posix_spawn(&child, "/bin/true", nil, nil, [nil], [nil]) != EPERM { failures.append("posix_spawn") }
      let code = mmap(nil, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
      if code != MAP_FAILED { failures.append("mmap") }
      let data = mmap(nil, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
      if data == MAP_FAILED || !isRefused(Int(mprotect(data, 4096, PROT_READ | PROT_EXEC))) {
        failures.append("mprotect")
      }
      _exit(failures.isEmpty ? 7 : 1)
    }
  }

  @Test func aProcessThatHasGrownNoticesItWithoutFurtherRights() async {
    await #expect(processExitsWith: .exitCode(7)) {
      JQWorker.limitResources()
      try JQWorker.confine()
      let hadRoom = JQWorker.hasRoom()
      let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
      let more = mmap(nil, JQWorker.renewalSize + 64 << 20, PROT_READ | PROT_WRITE, flags, -1, 0)
      _exit(hadRoom && more != MAP_FAILED && !JQWorker.hasRoom() ? 7 : 1)
    }
  }

  /// `NAME: value` of /proc/PID/status.
  private func status(_ id: pid_t) -> [Substring: Substring] {
    let lines = contents("/proc/\(id)/status").split(separator: "\n").map { $0.split(separator: ":\t") }
    return Dictionary(lines.compactMap { $0.count == 2 ? ($0[0], $0[1]) : nil }) { first, _ in first }
  }

  private func contents(_ path: String) -> String {
    let file = open(path, O_RDONLY)
    defer { close(file) }
    var bytes = [UInt8](repeating: 0, count: 65536)
    let count = read(file, &bytes, bytes.count)
    return String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
  }

  /// The jq process of the stream with this name.
  private func process(named name: String) -> pid_t? {
    guard let folder = opendir("/proc") else { return nil }
    defer { closedir(folder) }
    while let entry = readdir(folder) {
      let id = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      let words = contents("/proc/\(id)/cmdline").split(separator: "\0")
      guard words.count == 2, words[1] == JQWorker.argument else { continue }
      let values = contents("/proc/\(id)/environ").split(separator: "\0")
      if values.count == 2, values[1].hasSuffix("=\(name)") { return pid_t(id) }
    }
    return nil
  }

  @Test func theProcessIsConfinedBeforeTheFirstEvent() async throws {
    try await withSourceThread { thread in
      let name = "rights-\(uniqueKey())"
      let source = ScriptedSource()
      let taker = Taker(.unlimited)
      let executable = try ChildProcess.built("streamd")
      source.jq(JQTransform(program: "."), name: name, executable: executable, on: thread) { _ in }.subscribe(taker)
      try await source.until { $0.requested == 1 }
      source.send("1")
      #expect(await taker.next(1) == ["1"])
      let id = try #require(process(named: name))
      let status = status(id)
      #expect(status["Seccomp"] == "2" && status["NoNewPrivs"] == "1")
      let limits = contents("/proc/\(id)/limits").split(separator: "\n")
      for name in ["Max open files", "Max processes", "Max file size"] {
        let line = limits.first { $0.hasPrefix(name) }?.dropFirst(26).split(separator: " ").prefix(2)
        #expect(line.map(Array.init) == ["0", "0"], "\(name)")
      }
      taker.cancel()
    }
  }

  @Test func clockTimeZoneAndMemoryStillWork() async throws {
    try await withSourceThread { thread in
      let source = ScriptedSource([["0", "1"]])
      let taker = Taker(.unlimited)
      let program = """
        if . == 0 then (now > 1e9), (0 | todate), (0 | localtime | mktime | type), (0 | strflocaltime("%H:%M %Z") | type),
        ("2015-03-05T23:51:47Z" | strptime("%Y-%m-%dT%H:%M:%SZ") | mktime), ("aXb" | test("x"; "i")), ([range(1e5)] | length),
        ("x" * 1e6 | length), ([limit(3; repeat(1))] | length), ("a" | @base64), ({} | tojson | fromjson), ("abc" | ltrimstr("a"))
        else . as [$a] | $a end
        """
      source.jq(
        JQTransform(program: program), name: "zone", executable: try ChildProcess.built("streamd"), on: thread
      ) { _ in }.subscribe(taker)
      #expect(
        await taker.next(1) == [
          #"true|"1970-01-01T00:00:00Z"|"number"|"string"|1425599507|true|100000|1000000|3|"YQ=="|{}|"bc""#
        ])
    }
  }

  /// A substitute for the process on a kernel without seccomp.
  @Test func aMissingSeccompIsReportedOnceAndTheStreamRuns() async throws {
    let helper = Upstream.file(besideTheServer: "unconfined.py")
    let reports = Shared<[PipelineReport]>([])
    try await withSourceThread { thread in
      for name in ["a", "b"] {
        let source = ScriptedSource([["1"]])
        let taker = Taker(.unlimited)
        source.jq(JQTransform(program: "."), name: name, executable: helper, on: thread) { report in
          reports.withLock { $0.append(report) }
        }.subscribe(taker)
        #expect(await taker.next(1) == ["1"])
      }
    }
    let limited = "jq runs unconfined: seccomp: Function not implemented"
    #expect(reports.withLock { $0.filter { $0 != .passing } } == [.process(.limited(limited))])
  }
}
