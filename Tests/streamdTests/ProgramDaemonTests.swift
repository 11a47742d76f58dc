import FoundationEssentials
import Glibc
import StreamClient
import TestSupport
import Testing

/// The built binary with programs as its sources.
@Suite(.timeLimit(.minutes(10))) struct ProgramDaemonTests {
  let folder: TemporaryFolder

  init() throws { folder = try TemporaryFolder() }

  private func text(_ event: StreamEvent) -> String { String(decoding: event.data, as: UTF8.self) }

  private func content(_ name: String) -> String {
    guard let file = fopen(folder.path(name), "r") else { return "" }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 64)
    let count = fread(&bytes, 1, bytes.count, file)
    return String(decoding: bytes.prefix(count), as: UTF8.self)
  }

  @Test func aProgramIsASourceAndItsStandardErrorIsLogged() async throws {
    let daemon = try await DaemonProcess(
      #"""
      [streams.sensor]
      exec = { command = ["sh", "-c", 'echo "too $K" >&2; echo "$K"; exit 3'], environment = { K = "warm" } }
      retry = { first = "10ms", max = "20ms" }
      """#)
    let connection = try StreamConnection(socket: daemon.socket)
    var events = connection.stream("sensor").values.makeAsyncIterator()
    for _ in 0..<3 { #expect(try await events.next().map(text) == "warm") }
    var catalogue = connection.stream("$streams").values.makeAsyncIterator()
    let row = try #require(try await catalogue.next().map(text))
    #expect(row.contains(#""source":"exec""#))
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(try await daemon.logs("sensor: program wrote: too warm"))
    #expect(try await daemon.logs("sensor: source failing: sh exited with status 3;"))
  }

  /// It is the parent of orphans, as in a container. A run's end waits for those of its group, so a dead one that stays would
  /// delay the event until the group is killed.
  @Test(.enabled(if: geteuid() == 0, "only root can make a namespace of processes"))
  func theFirstProcessOfANamespaceReapsOrphans() async throws {
    let daemon = try await DaemonProcess(
      #"""
      [streams.run]
      exec = { command = ["sh", "-c", "sleep 1000 & setsid -f true; echo $$"], every = "10ms" }
      [streams.zombies]
      exec = { command = ["sh", "-c", "grep -l '^State:.Z' /proc/[0-9]*/status | wc -l; echo $$"], every = "10ms" }
      """#, environment: ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"])
    let connection = try StreamConnection(socket: daemon.socket)
    var runs = connection.stream("run").values.makeAsyncIterator()
    var (last, gaps) = (UInt64(0), [UInt64]())
    for _ in 0..<5 {
      let time = try #require(try await runs.next()?.time)
      gaps.append(time - last)
      last = time
    }
    // Without a reaper each run takes the program's grace of 5 s.
    #expect(gaps.dropFirst().min()! < 4_000_000, "\(gaps)")
    var counts = connection.stream("zombies").values.makeAsyncIterator()
    while let count = try await counts.next().map(text), !count.hasPrefix("0\n") {}
    connection.close()
  }

  @Test func whatIsNotJSONIsDroppedFromASourceAndCounted() async throws {
    let daemon = try await DaemonProcess(
      #"""
      [streams.sensor]
      exec = { command = ["sh", "-c", 'echo 1; echo "too warm"; echo 2; exec sleep 1000'] }
      validate = "json"
      [streams.any]
      exec = { command = ["sh", "-c", 'echo 1; echo "too warm"; echo 2; exec sleep 1000'] }
      replay = 9
      """#)
    let connection = try StreamConnection(socket: daemon.socket)
    var events = connection.stream("sensor").values.makeAsyncIterator()
    for value in ["1", "2"] { #expect(try await events.next().map(text) == value) }
    var all = connection.stream("any").values.makeAsyncIterator()
    for value in ["1", "too warm", "2"] { #expect(try await all.next().map(text) == value) }
    var catalogue = connection.stream("$streams").values.makeAsyncIterator()
    let rows = try #require(try await catalogue.next().map(text))
    #expect(rows.components(separatedBy: #""malformed":1"#).count == 3, "\(rows)")
    let status = try ChildProcess(ChildProcess.built("streamctl"), ["--socket", daemon.socket, "status"])
    #expect(
      await status.text(of: status.output).split(separator: "\n").contains {
        $0.split(separator: " ") == ["malformed", "2"]
      })
    #expect(await status.end() == 0)
    connection.close()
    #expect(await daemon.stop() == 0)
    #expect(
      try await daemon.logs(
        "sensor: event failed: it is not JSON, which the stream requires (validate): 'o' at byte 2\n"))
    #expect(!daemon.log.contains("any: "))
  }

  @Test func aProgramByTheClockRepeatsNoOutputOverKillsAndIsRefreshed() async throws {
    func stream(_ every: String) -> String {
      #"""
      [streams.s]
      exec = { command = ["sh", "-c", "echo >> \#(folder.path("runs")); cat \#(folder.path("output"))"], every = "\#(every)" }
      start = "always"
      keep = "disk"
      """#
    }
    func letRunsPass() async throws {
      let before = content("runs").utf8.count
      while content("runs").utf8.count < min(64, before + 4) { try await Task.sleep(for: .milliseconds(5)) }
      try folder.write([], to: "runs")
    }
    try folder.write(Array("one\n".utf8), to: "output")
    let daemon = try RestartedDaemon(hasManager: false)
    try await daemon.start(stream("5ms"))
    #expect(try await daemon.events(1).map(text) == ["one"])
    await daemon.kill()
    try await daemon.start(stream("5ms"))
    try await letRunsPass()
    #expect(try await daemon.events(1, from: .latest).map(text) == ["one"])
    await daemon.kill()
    try folder.write(Array("two\n".utf8), to: "output")
    try await daemon.start(stream("1h"))
    #expect(try await daemon.events(2).map(text) == ["one", "two"])
    try folder.write(Array("three\n".utf8), to: "output")
    let socket = daemon.folder.path("s")
    let refresh = try ChildProcess(ChildProcess.built("streamctl"), ["--socket", socket, "refresh", "s"])
    #expect(await refresh.end() == 0)
    #expect(try await daemon.events(3).map(text) == ["one", "two", "three"])
    #expect(await daemon.stop() == 0)
  }

  @Test func programsEndBeforeTheDaemonEvenIfTheyIgnoreSIGTERM() async throws {
    let daemon = try await DaemonProcess(
      #"""
      [streams.willing]
      exec = { command = ["sh", "-c", "echo $$; while :; do sleep 1; done"] }
      [streams.unwilling]
      exec = { command = ["sh", "-c", "trap '' TERM; sleep 1000 & echo $!; echo $$; while :; do sleep 1; done"] }
      """#)
    let connection = try StreamConnection(socket: daemon.socket)
    var willing = connection.stream("willing").values.makeAsyncIterator()
    var unwilling = connection.stream("unwilling").values.makeAsyncIterator()
    var ids: [pid_t] = []
    for event in [try await willing.next(), try await unwilling.next(), try await unwilling.next()] {
      ids.append(try #require(event.map(text).flatMap { pid_t($0) }))
    }
    for id in ids { #expect(isRunning(id)) }
    #expect(await daemon.stop() == 0)
    for id in ids { #expect(!isRunning(id)) }
    #expect(!daemon.log.contains("failing"))
  }

  @Test func aKilledDaemonLeavesNoProgramOrItsChildren() async throws {
    let daemon = try await DaemonProcess(
      #"""
      [streams.willing]
      exec = { command = ["sh", "-c", "echo $$; exec sleep 1000"] }
      [streams.unwilling]
      exec = { command = ["sh", "-c", "trap '' TERM; sleep 1000 & echo $!; echo $$; while :; do sleep 1; done"] }
      [streams.stopped]
      exec = { command = ["sh", "-c", "echo $$; kill -STOP $$"] }
      [streams.gone]
      exec = { command = ["sh", "-c", "echo $$"] }
      """#)
    let connection = try StreamConnection(socket: daemon.socket)
    var ids: [pid_t] = []
    var subscriptions: [Any] = []
    for (name, count) in [("gone", 1), ("willing", 1), ("unwilling", 2), ("stopped", 1)] {
      var events = connection.stream(name).values.makeAsyncIterator()
      for _ in 0..<count { ids.append(try #require(try await events.next().map(text).flatMap { pid_t($0) })) }
      subscriptions.append(events)
    }
    for id in ids.dropFirst() { #expect(isRunning(id)) }
    daemon.signal(SIGKILL)
    while ids.contains(where: isRunning) { try await Task.sleep(for: .milliseconds(5)) }
    connection.close()
  }

  @Test func aKilledDaemonLeavesNoJQProcess() async throws {
    let name = "loop-\(getpid())"
    let daemon = try await DaemonProcess(
      #"""
      [streams.\#(name)]
      timer = { every = "10ms" }
      start = "always"
      jq = "def f: f; f"
      """#)
    func process() -> pid_t? {
      guard let folder = opendir("/proc") else { return nil }
      defer { closedir(folder) }
      while let entry = readdir(folder) {
        let id = withUnsafePointer(to: &entry.pointee.d_name) {
          $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        let values = (try? String(contentsOfFile: "/proc/\(id)/environ", encoding: .utf8)) ?? ""
        if values.hasSuffix("=\(name)\0") { return pid_t(id) }
      }
      return nil
    }
    while process() == nil { try await Task.sleep(for: .milliseconds(5)) }
    let id = try #require(process())
    // Every user may read the arguments.
    #expect(try String(contentsOfFile: "/proc/\(id)/cmdline", encoding: .utf8) == "streamd\0--jq\0")
    // Busy with an event that would take it 10 s of processor time: how much it has used when it is seen for the last
    // time says whether it came to that.
    while (processorTicks(of: id) ?? 0) < 10 { try await Task.sleep(for: .milliseconds(5)) }
    daemon.signal(SIGKILL)
    var last = 0
    while isRunning(id) {
      last = processorTicks(of: id) ?? last
      try await Task.sleep(for: .milliseconds(5))
    }
    #expect(last < 900)
  }

  /// Hundredths of a second of the processor.
  private func processorTicks(of id: pid_t) -> Int? {
    let stat = (try? String(contentsOfFile: "/proc/\(id)/stat", encoding: .utf8)) ?? ""
    let fields = stat.split(separator: ")").last?.split(separator: " ") ?? []
    return fields.count > 12 ? Int(fields[11]).flatMap { user in Int(fields[12]).map { user + $0 } } : nil
  }

  @Test func aLosslessStreamSuspendsItsProgramAndLosesNothing() async throws {
    // Reports when its next write will block, and its position.
    try folder.write(
      Array(
        """
        import os, select, sys
        for number in range(1, 501):
            if not select.select([], [1], [], 0)[1]:
                with open(sys.argv[1] + "/blocked.new", "w") as file: file.write(str(number))
                os.rename(sys.argv[1] + "/blocked.new", sys.argv[1] + "/blocked")
            os.write(1, b"%0999d\\n" % number)
        select.select([], [], [])
        """.utf8), to: "program.py")
    let daemon = try await DaemonProcess(
      #"""
      [streams.work]
      exec = { command = ["python3", "\#(folder.path("program.py"))", "\#(folder.path)"] }
      overflow = "block"
      buffer = { events = 16 }
      """#)
    let connection = try StreamConnection(socket: daemon.socket)
    let probe = CreditProbe()
    connection.stream("work").subscribe(probe)
    probe.request(10)
    var numbers: [Int?] = []
    for _ in 0..<10 { numbers.append(Int(text(await probe.next()))) }
    while content("blocked").isEmpty { try await Task.sleep(for: .milliseconds(1)) }
    // What was taken, the buffer, one batch that waits for room in it, and what the pipe holds.
    #expect(try #require(Int(content("blocked"))) <= 10 + 16 + 66 + 66)
    probe.request(1000)
    for _ in 10..<500 { numbers.append(Int(text(await probe.next()))) }
    #expect(numbers == Array(1...500))
    connection.close()
    #expect(await daemon.stop() == 0)
  }
}
