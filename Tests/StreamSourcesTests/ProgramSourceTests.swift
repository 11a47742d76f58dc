import Glibc
import Reactive
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct ProgramSourceTests {
  let reports = Shared<[SourceReport]>([])
  let folder: TemporaryFolder

  init() throws { folder = try TemporaryFolder() }

  /// - Parameter script: for a shell; `$F` is the test's folder.
  private func program(
    _ script: String, on thread: SourceThread, _ change: (inout ProgramConfiguration) -> Void = { _ in }
  ) -> Source<ProgramSource> {
    program(["sh", "-c", script], on: thread, change)
  }

  private func program(
    _ command: [String], on thread: SourceThread, _ change: (inout ProgramConfiguration) -> Void = { _ in }
  ) -> Source<ProgramSource> {
    var configuration = ProgramConfiguration(
      command: command, environment: ["F": folder.path],
      retry: Backoff(first: .milliseconds(1), max: .milliseconds(2)))
    change(&configuration)
    return ProgramSource(configuration).source(on: thread) { [reports] report in reports.withLock { $0.append(report) }
    }
  }

  private var sentences: [String] {
    reports.withLock { $0.compactMap { if case .failing(let sentence, _, _) = $0 { sentence } else { nil } } }
  }

  private var said: [String] {
    reports.withLock { $0.compactMap { if case .said(let line) = $0 { line } else { nil } } }
  }

  private func exists(_ name: String) -> Bool { access(folder.path(name), F_OK) == 0 }

  // MARK: Its place

  @Test func aReplacingSourceWaitsForTheOldProgramToEnd() async throws {
    try await withSourceThread { thread in
      let place = ProgramPlace()
      func source(_ script: String) -> Source<ProgramSource> {
        ProgramSource(ProgramConfiguration(command: ["sh", "-c", script], environment: ["F": folder.path]))
          .source(on: thread, with: { $0.place = place })
      }
      let (first, second) = (Taker(.unlimited), Taker(.unlimited))
      source(#"trap 'sleep 0.2; : > "$F/ended"; exit' TERM; echo one; while :; do sleep 0.01; done"#).subscribe(first)
      #expect(await first.next(1) == ["one"])
      first.cancel()
      source(#"[ -e "$F/ended" ] && echo alone; sleep 1000"#).subscribe(second)
      #expect(await second.next(1) == ["alone"])
      second.cancel()
    }
  }

  // MARK: Events

  @Test func linesAreEventsAndAlsoAnUnfinishedOneAfterASuccess() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program(#"printf 'a\n\nb\r\nc'"#, on: thread).subscribe(taker)
      #expect(await taker.next(4) == ["a|b", "c", "a|b", "c"])
      #expect(sentences.isEmpty)
      taker.cancel()
    }
  }

  @Test func anUnfinishedLineOfAFailedProgramIsNoEvent() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program(#"printf 'a\nhal'; exit 1"#, on: thread).subscribe(taker)
      #expect(await taker.next(2) == ["a", "a"])
      taker.cancel()
    }
  }

  @Test func argumentsAndEnvironmentArePassedUnchanged() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program(["printf", #"<%s>"#, "a b", "$HOME;*", "", "'"], on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["<a b><$HOME;*><><'>"])
      taker.cancel()
      let other = Taker(.unlimited)
      program(#"echo "$K"; echo "${HOME+home}""#, on: thread) { $0.environment["K"] = "v  = w" }.subscribe(other)
      #expect(await other.next(1).first?.hasPrefix("v  = w") == true)
      other.cancel()
    }
  }

  @Test func aProgramHasThreeDescriptorsAndDefaultSignals() async throws {
    let inheritable = open("/dev/null", O_RDONLY)  // as a daemon may inherit it
    defer { close(inheritable) }
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let script = #"""
        i=0; while [ $i -lt 256 ]; do [ ! -e /proc/$$/fd/$i ] || printf '%s ' $i; i=$((i+1)); done
        read -r line || printf 'empty '
        sed -n 's/^Sig\(Blk\|Ign\):\t//p' /proc/self/status | tr '\n' ' '
        [ "$(ps -o pgid= -p $$ 2>/dev/null || cut -d' ' -f5 /proc/$$/stat)" -eq $$ ] && echo leads
        """#
      program(script, on: thread).subscribe(taker)
      var seen = await taker.next(1)[0].split(separator: " ").map(String.init)
      // The C library reserves and ignores signals 32 and 33.
      try #require(seen.count == 7)
      seen[5] = String((UInt64(seen[5], radix: 16) ?? .max) & ~0x1_8000_0000)
      #expect(seen == ["0", "1", "2", "empty", "0000000000000000", "0", "leads"])
      taker.cancel()
    }
  }

  @Test func aLineOverTheLimitIsAFailureAndEarlierLinesAreEvents() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program(#"echo ok; printf '%2000d' 1; sleep 1000"#, on: thread) { $0.maximumLineBytes = 1024 }.subscribe(taker)
      #expect(await taker.next(2) == ["ok", "ok"])
      #expect(sentences.first == "sh wrote a line over 1 KiB")
      taker.cancel()
    }
  }

  // MARK: Demand

  @Test func withoutDemandNoProgramIsStarted() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.none)
      program("touch $F/started", on: thread).subscribe(taker)
      let pace = Taker(.unlimited)
      program("echo a", on: thread).subscribe(pace)
      _ = await pace.next(5)
      pace.cancel()
      #expect(!exists("started"))
      taker.cancel()
    }
  }

  @Test func withoutDemandAProgramBlocksInItsWriteAndLosesNothing() async throws {
    // Reports when its next write will block, and its position.
    let script = """
      import os, select
      number = 0
      while True:
          number += 1
          if not select.select([], [1], [], 0)[1]:
              with open(os.environ["F"] + "/blocked.new", "w") as file: file.write(str(number))
              os.rename(os.environ["F"] + "/blocked.new", os.environ["F"] + "/blocked")
          os.write(1, b"%0999d\\n" % number)
      """
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      program(["python3", "-c", script], on: thread).subscribe(taker)
      var batches = await taker.next(1)
      while !exists("blocked") { try await Task.sleep(for: .milliseconds(1)) }
      // It may have continued after that read, by at most the size of its pipe.
      func blockedAt() throws -> Int {
        let file = try #require(fopen(folder.path("blocked"), "r"))
        defer { fclose(file) }
        var text = [CChar](repeating: 0, count: 32)
        fgets(&text, 32, file)
        return try #require(Int(String(decoding: text.prefix { $0 != 0 }.map { UInt8($0) }, as: UTF8.self)))
      }
      #expect(try blockedAt() - 1 <= batches[0].split(separator: "|").count + 66)
      #expect(taker.count == 1)
      unlink(folder.path("blocked"))
      taker.request(.max(3))
      batches += await taker.next(3)
      while !exists("blocked") { try await Task.sleep(for: .milliseconds(1)) }
      #expect(taker.count == 4)
      taker.request(.unlimited)
      batches += await taker.next(20)
      let numbers = batches.flatMap { $0.split(separator: "|") }.map { Int($0) }
      #expect(numbers == Array(1...numbers.count))
      taker.cancel()
    }
  }

  @Test func outputOfAnEndedProgramWaitsForDemand() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      let script = #"echo a; while [ ! -e $F/go ]; do sleep 0.01; done; printf 'b\nc'; echo $$ > $F/id"#
      program(script, on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["a"])
      try folder.write([], to: "go")
      while !exists("id") { try await Task.sleep(for: .milliseconds(1)) }
      try await waitForEnd(of: try number("id"))
      #expect(taker.count == 1)
      taker.request(.max(1))
      #expect(await taker.next(1) == ["b"])
      taker.request(.max(1))
      #expect(await taker.next(1) == ["c"])
      #expect(sentences.isEmpty)
      taker.cancel()
    }
  }

  // MARK: Standard error

  @Test func standardErrorIsReportedPerLineWithoutDemand() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      let script = #"""
        echo a
        printf 'first\r\n\nsecond\n%3000d\n' 1 >&2
        head -c 1000000 /dev/zero >&2
        echo >&2
        printf last >&2
        touch $F/done; sleep 1000
        """#
      program(script, on: thread).subscribe(taker)
      while !exists("done") { try await Task.sleep(for: .milliseconds(1)) }
      taker.cancel()
      while said.count < 5 { try await Task.sleep(for: .milliseconds(1)) }
      #expect(said.count == 5 && said[0] == "first" && said[1] == "second" && said[4] == "last")
      #expect(said[2] == String(repeating: " ", count: 2048) + "… (cut at 2 KiB)")
      #expect(sentences.isEmpty)
    }
  }

  @Test(arguments: [1, 4]) func floodsOnStandardErrorLeaveTheirThreadToOthers(count: Int) async throws {
    try await withSourceThread { thread in
      func processorTime() async -> Duration {
        await withCheckedContinuation { continuation in
          thread.loop.execute {
            var time = timespec()
            clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
            continuation.resume(returning: .seconds(time.tv_sec) + .nanoseconds(time.tv_nsec))
          }
        }
      }
      let takers = (0..<count).map { _ in Taker(.max(1)) }
      for (number, taker) in takers.enumerated() { program("yes \(number) >&2", on: thread).subscribe(taker) }
      while Set(said).count < count { try await Task.sleep(for: .milliseconds(10)) }
      let (start, spent) = (ContinuousClock.now, await processorTime())
      try await Task.sleep(for: .milliseconds(300))
      let share = (await processorTime() - spent) / (ContinuousClock.now - start)
      #expect(share < 0.5)
      for taker in takers { taker.cancel() }
    }
  }

  /// A program may write lines faster than they are read.
  @Test func allLinesOfStandardErrorAreReportedBeforeTheEndOfTheirProgram() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program("mkdir $F/1 || exec echo fine; yes x | head -n 30000 >&2; printf last >&2; exit 3", on: thread)
        .subscribe(taker)
      #expect(await taker.next(1) == ["fine"])
      let lines = said.filter { $0 == "x" || $0 == "last" }
      #expect(lines.count == 30_001 && lines.last == "last" && sentences == ["sh exited with status 3"])
      taker.cancel()
    }
  }

  // MARK: Failing

  @Test(arguments: [
    ("exit 3", "sh exited with status 3"), ("kill -SEGV $$", "sh was terminated by SIGSEGV"),
    ("kill -40 $$", "sh was terminated by signal 40"),
  ])
  func aFailedProgramIsReportedAndRestarted(script: String, sentence: String) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program("mkdir $F/1 || mkdir $F/2 || exec echo fine; \(script)", on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["fine"])
      #expect(sentences == [sentence, sentence])
      let isRecovered = reports.withLock { $0.contains(.recovered(afterFailures: 2)) }
      #expect(isRecovered)
      taker.cancel()
      rmdir(folder.path("1"))
      rmdir(folder.path("2"))
    }
  }

  @Test func aMissingProgramIsAFailureWithAMessage() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program(["/nonexistent/sensor"], on: thread).subscribe(taker)
      while sentences.count < 2 { try await Task.sleep(for: .milliseconds(1)) }
      #expect(sentences[0] == "cannot start sensor: posix_spawn: No such file or directory")
      taker.cancel()
    }
  }

  @Test func aProgramThatExitsWithZeroIsRestartedWithoutFailure() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program("mkdir $F/1 || mkdir $F/2 || exec echo $$", on: thread).subscribe(taker)
      #expect(Set(await taker.next(3)).count == 3)
      #expect(sentences.isEmpty)
      taker.cancel()
      rmdir(folder.path("1"))
      rmdir(folder.path("2"))
    }
  }

  @Test func aProgramThatClosedItsOutputMayExit() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program("echo a; exec >&-; sleep 0.02; exit 0", on: thread).subscribe(taker)
      #expect(await taker.next(2) == ["a", "a"])
      #expect(sentences.isEmpty)
      taker.cancel()
    }
  }

  @Test func aProgramThatRunsAfterClosingItsOutputIsTerminated() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program("echo a; exec >&-; exec sleep 1000", on: thread) { $0.grace = .milliseconds(20) }.subscribe(taker)
      #expect(await taker.next(2) == ["a", "a"])
      #expect(sentences.first == "sh closed its output and did not exit within 20 ms")
      taker.cancel()
    }
  }

  // MARK: Ending

  /// Waits until this process has no child, also none to reap.
  private func waitForEnd(of id: pid_t) async throws {
    while kill(id, 0) == 0 { try await Task.sleep(for: .milliseconds(1)) }
  }

  private func number(_ name: String) throws -> pid_t {
    let file = try #require(fopen(folder.path(name), "r"))
    defer { fclose(file) }
    var text = [CChar](repeating: 0, count: 32)
    while fgets(&text, 32, file) == nil { rewind(file) }
    return try #require(pid_t(String(decoding: text.prefix { $0 > 32 }.map { UInt8($0) }, as: UTF8.self)))
  }

  private func id(_ taker: Taker) async throws -> pid_t {
    let event = await taker.next(1).first ?? ""
    return try #require(pid_t(event))
  }

  @Test func aCancelledProgramGetsSIGTERMAndIsReaped() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let script = #"trap 'echo bye; echo bye >&2; touch $F/bye; exit 7' TERM; echo $$; while :; do sleep 0.01; done"#
      program(script, on: thread).subscribe(taker)
      let id = try await id(taker)
      taker.cancel()
      try await waitForEnd(of: id)
      #expect(exists("bye"))
      while said.last != "bye" { try await Task.sleep(for: .milliseconds(1)) }
      #expect(said.last == "bye")
      #expect(taker.count == 1 && sentences.isEmpty)
    }
  }

  @Test func aProgramThatIgnoresSIGTERMIsKilledWithItsGroup() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program("trap '' TERM; sleep 1000 & echo $! > $F/child; echo $$; wait", on: thread) {
        $0.grace = .milliseconds(20)
      }.subscribe(taker)
      let id = try await id(taker)
      let child = try number("child")
      #expect(isRunning(child))
      taker.cancel()
      try await waitForEnd(of: id)
      while isRunning(child) { try await Task.sleep(for: .milliseconds(1)) }
    }
  }

  @Test func aStoppedProgramIsTerminated() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program("echo $$; exec sleep 1000", on: thread).subscribe(taker)
      let id = try await id(taker)
      kill(id, SIGSTOP)
      taker.cancel()
      try await waitForEnd(of: id)
    }
  }

  @Test(arguments: ["", "trap '' TERM; "])
  func theRestOfAGroupIsTerminatedBeforeTheNextStart(prefix: String) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      program("\(prefix)sleep 1000 & echo $!; exit 0", on: thread) { $0.grace = .milliseconds(20) }.subscribe(taker)
      let first = try await id(taker)
      _ = try await id(taker)
      #expect(!isRunning(first))
      #expect(sentences.isEmpty)
      taker.cancel()
    }
  }

  @Test func aProcessOutsideTheGroupWithThePipeDelaysNothing() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let script = """
        setsid sh -c 'touch $F/left; exec sleep 1000' &
        while [ ! -e $F/left ]; do sleep 0.01; done
        rm $F/left; echo $!
        """
      program(script, on: thread).subscribe(taker)
      let ids = [try await id(taker), try await id(taker)]
      #expect(ids[0] != ids[1])
      taker.cancel()
      for id in ids {
        #expect(isRunning(id))
        kill(id, SIGKILL)
      }
    }
  }

  @Test func aNewSubscriptionWaitsForTheEndOfTheOldProgram() async throws {
    let script = #"""
      mkdir $F/lock || { echo two; exit; }
      trap 'sleep 0.05; rmdir $F/lock; exit' TERM
      echo one; while :; do sleep 0.01; done
      """#
    try await withSourceThread { thread in
      let source = program(script, on: thread)
      for _ in 0..<3 {
        let taker = Taker(.unlimited)
        source.subscribe(taker)
        #expect(await taker.next(1) == ["one"])
        taker.cancel()
      }
      // Cancelled before it could start: the next one starts.
      let passing = Taker(.unlimited)
      source.subscribe(passing)
      passing.cancel()
      let last = Taker(.unlimited)
      source.subscribe(last)
      #expect(await last.next(1) == ["one"])
      #expect(passing.count == 0)
      last.cancel()
      while exists("lock") { try await Task.sleep(for: .milliseconds(1)) }
    }
  }

  @Test func aStoppedThreadHasEndedEveryProgram() async throws {
    let thread = try SourceThread()
    try thread.start()
    let takers = (0..<5).map { _ in Taker(.max(1)) }
    for (index, taker) in takers.enumerated() {
      let trap = index % 2 == 0 ? "trap '' TERM;" : ""
      program("\(trap) echo $$; while :; do sleep 1; done", on: thread).subscribe(taker)
    }
    var ids: [pid_t] = []
    for taker in takers { ids.append(try await id(taker)) }
    takers[0].cancel()  // with more grace than is left
    await withCheckedContinuation { continuation in
      thread.stop(within: .milliseconds(50)) { continuation.resume() }
    }
    for id in ids { #expect(kill(id, 0) != 0) }
    #expect(sentences.isEmpty)
  }
}

@Suite struct ErrorLinesTests {
  @Test(arguments: [1, 2, 3, 100, 5000]) func linesAreTheSameWhateverThePieces(pieceBytes: Int) {
    let long = String(repeating: "x", count: ErrorLines.limit)
    let text = Array("a\n\r\n\nb\r\n\(long)\n\(long)y\(long)\nc\n\(long)zz".utf8)
    var splitter = ErrorLines()
    var lines: [String] = []
    for start in stride(from: 0, to: text.count, by: pieceBytes) {
      lines += text[start..<min(text.count, start + pieceBytes)].withUnsafeBytes { splitter.split($0) }
    }
    lines += splitter.end()
    let cut = long + "… (cut at 2 KiB)"
    #expect(lines == ["a", "b", long, cut, "c", cut])
  }
}

@Suite struct ProgramEnvironmentTests {
  @Test func variablesOfTheDaemonAreNotInherited() {
    let inherited = [
      "PATH=/bin", "NOTIFY_SOCKET=/run/n", "LISTEN_FDS=1", "LISTEN_PID=1", "LISTEN_FDNAMES=a=b", "WATCHDOG_USEC=1",
      "JOURNAL_STREAM=8:1", "CREDENTIALS_DIRECTORY=/run/c", "INVOCATION_ID=x", "LISTEN_ADDRESS=y", "K=old", "odd",
      "SWIFT_BACKTRACE=enable=no",
    ]
    let given = ProgramEnvironment.assignments(inherited: inherited, more: ["K": "new", "A": "=", "FDSTORE": "1"])
    #expect(given == ["PATH=/bin", "INVOCATION_ID=x", "LISTEN_ADDRESS=y", "odd", "A==", "FDSTORE=1", "K=new"])
  }
}
