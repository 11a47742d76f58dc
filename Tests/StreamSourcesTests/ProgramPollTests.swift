import Events
import Glibc
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct ProgramPollTests {
  let reports = Shared<[SourceReport]>([])
  let folder: TemporaryFolder

  init() throws { folder = try TemporaryFolder() }

  /// A source whose next run counts the lines of `$F/runs`; `$N` is its number.
  private func poll(
    _ script: String, form: ProgramPoll.Form = .whole(maximumBytes: 1 << 20), every: Duration = .milliseconds(2),
    retry: Backoff = Backoff(first: .milliseconds(1), max: .milliseconds(2)), timeout: Duration = .seconds(60),
    in place: ProgramPlace = ProgramPlace(), pipeline: String = "", resumption: (@Sendable () -> Checkpoint?)? = nil,
    admission: FetchAdmission? = nil, handover: SourceHandover? = nil, refresh: SourceRefresh = SourceRefresh(),
    on thread: SourceThread, succeeded: @escaping @Sendable () -> Void = {}
  ) -> Source<ProgramPoll> {
    let counter = "echo >> $F/runs; N=$(wc -l < $F/runs); "
    let configuration = ProgramConfiguration(
      command: ["sh", "-c", counter + script], environment: ["F": folder.path], maximumLineBytes: 1024, retry: retry)
    return ProgramPoll(configuration, every: every, form: form, timeout: timeout).source(
      on: thread, report: { [reports] report in reports.withLock { $0.append(report) } }
    ) {
      ($0.name, $0.place, $0.pipeline) = ("a", place, pipeline)
      if let resumption { $0.checkpoint = { _ in resumption() } }
      ($0.admission, $0.handover, $0.refresh, $0.succeeded) = (admission, handover, refresh, succeeded)
    }
  }

  private var sentences: [String] {
    reports.withLock { $0.compactMap { if case .failing(let sentence, _, _) = $0 { sentence } else { nil } } }
  }

  /// The number of runs so far.
  private var runs: Int {
    guard let file = fopen(folder.path("runs"), "r") else { return 0 }
    defer { fclose(file) }
    var count = 0
    while fgetc(file) != EOF { count += 1 }
    return count
  }

  private func waitForRuns(_ count: Int) async throws {
    while runs < count { try await Task.sleep(for: .milliseconds(1)) }
  }

  // MARK: Events

  @Test func theOutputOfARunIsOneEventWithoutTheLineEndAtItsEnd() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let script = #"""
        case $N in
        1) printf 'a\n\nb\r\n';; 2) printf '\357\273\277c';; 3) printf 'd\n\n';; 4) printf ' e';; *) exec sleep 1000
        esac
        """#
      poll(script, on: thread).subscribe(taker)
      #expect(await taker.next(4) == ["a\n\nb", "c", "d\n", " e"])
      #expect(reports.withLock { $0 }.isEmpty)
      taker.cancel()
    }
  }

  @Test func anEmptyOrEqualOutputIsNoEventAndASuccess() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let successes = Shared(0)
      let script =
        #"case $N in 1|2|4) echo a;; 3) :;; 5) printf '\n \n';; 6) printf a;; 7) echo b;; *) exec sleep 1000; esac"#
      poll(script, on: thread) { successes.withLock { $0 += 1 } }.subscribe(taker)
      #expect(await taker.next(2) == ["a", "b"])
      while successes.withLock({ $0 }) < 7 { try await Task.sleep(for: .milliseconds(1)) }
      #expect((7...8).contains(runs) && successes.withLock { $0 } == 7)  // the eighth does not end
      #expect(reports.withLock { $0 }.isEmpty)
      taker.cancel()
    }
  }

  @Test func anOutputThatEqualsTheOneOfTheCheckpointIsNoEvent() async throws {
    try await withSourceThread { thread in
      let kept = Shared<Checkpoint?>(nil)
      func source(_ script: String, _ pipeline: String = "") -> Source<ProgramPoll> {
        poll(script, pipeline: pipeline, resumption: { kept.withLock { $0 } }, on: thread)
      }
      let batches = Shared<[EventBatch]>([])
      let script = "[ $N = 3 ] && echo b || echo a"
      let first = Taker(.max(1))
      source(script).handleEvents(receiveOutput: { batch in batches.withLock { $0.append(batch) } }).subscribe(first)
      #expect(await first.next(1) == ["a"])
      first.cancel()
      kept.withLock { $0 = batches.withLock { $0[0].checkpoint } }
      #expect(kept.withLock { $0 } != nil)
      let second = Taker(.max(1))
      source(script).subscribe(second)
      #expect(await second.next(1) == ["b"])
      second.cancel()
      // To another pipeline, and of another command, the output is new.
      for other in [source(script, "x"), source(script + " # other")] {
        let taker = Taker(.max(1))
        other.subscribe(taker)
        #expect(await taker.next(1) == ["a"])
        taker.cancel()
      }
    }
  }

  @Test func linesAreEventsWhileTheRunGoesOnAndAreNotCompared() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let script = #"echo a; while [ ! -e $F/go ]; do sleep 0.01; done; printf 'a\n\nlast'; rm $F/go"#
      poll(script, form: .lines, on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["a"])
      for _ in 0..<2 {
        try folder.write([], to: "go")
        let rest = await taker.next(3)
        #expect(rest == ["a", "last", "a"])
      }
      #expect(reports.withLock { $0 }.isEmpty)
      taker.cancel()
    }
  }

  // MARK: Failing

  @Test(arguments: [
    ("echo no; exit 3", "sh exited with status 3"), ("echo no; kill -SEGV $$", "sh was terminated by SIGSEGV"),
    ("printf '%2000d' 1; exec sleep 1000", "sh wrote output over 1 KiB"),
    ("echo no; trap '' TERM; exec sleep 1000", "sh did not end within 60 ms (timeout)"),
    ("exec 1>&-; exec sleep 1000", "sh did not end within 60 ms (timeout)"),
  ])
  func aFailedRunHasNoEventAndIsRepeated(script: String, sentence: String) async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let isSlow = sentence.contains("timeout")
      let whole = "[ $N -gt 2 ] && exec echo fine; \(script)"
      poll(
        whole, form: .whole(maximumBytes: 1024), timeout: isSlow ? .milliseconds(60) : .seconds(60), on: thread
      ).subscribe(taker)
      #expect(await taker.next(1) == ["fine"])
      // On a busy machine the run that ends well may take too long, too.
      let failed = sentences
      #expect(Set(failed) == [sentence] && (isSlow ? failed.count >= 2 : failed.count == 2), "\(failed)")
      #expect(reports.withLock { $0.contains(.recovered(afterFailures: failed.count)) })
      taker.cancel()
    }
  }

  @Test func theLimitCountsNeitherAByteOrderMarkNorTheLineEnd() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let script = #"case $N in 1) printf '\357\273\277abcd\r\n';; 2) echo abcde;; 3) echo abc;; *) sleep 1000;; esac"#
      poll(script, form: .whole(maximumBytes: 4), on: thread).subscribe(taker)
      #expect(await taker.next(2) == ["abcd", "abc"])
      #expect(sentences == ["sh wrote output over 4 B"])
      taker.cancel()
    }
  }

  @Test func linesBeforeAFailureStay() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let script = #"""
        case $N in
        1) printf 'a\nhal'; exit 1;; 2) echo b; printf '%2000d' 1;; *) echo c; exec sleep 1000
        esac
        """#
      poll(script, form: .lines, on: thread).subscribe(taker)
      #expect(await taker.next(3) == ["a", "b", "c"])
      #expect(sentences == ["sh exited with status 1", "sh wrote a line over 1 KiB"])
      // A run that goes on does not show that the next failure is another one.
      #expect(!reports.withLock { $0.contains { if case .recovered = $0 { true } else { false } } })
      taker.cancel()
    }
  }

  @Test func aRunThatBeginsAtTheEndOfAFailedOneHasATimeout() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let script = "[ $N = 1 ] && exit 1; [ $N = 2 ] || exec echo fine; exec sleep 1000"
      let atOnce = Backoff(first: .nanoseconds(1), max: .nanoseconds(1))
      poll(script, retry: atOnce, timeout: .milliseconds(300), on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["fine"])
      #expect(sentences.last == "sh did not end within 300 ms (timeout)")
      taker.cancel()
    }
  }

  /// A shell may need longer than the timeout to begin.
  @Test func linesBeforeATimeoutStay() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      poll("echo a; exec sleep 1000", form: .lines, timeout: .milliseconds(200), on: thread).subscribe(taker)
      #expect(await taker.next(2) == ["a", "a"])
      #expect(!sentences.isEmpty && sentences.allSatisfy { $0 == "sh did not end within 200 ms (timeout)" })
      #expect(!reports.withLock { $0.contains { if case .recovered = $0 { true } else { false } } })
      taker.cancel()
    }
  }

  @Test func aMissingProgramIsAFailure() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let reports = reports
      ProgramPoll(
        ProgramConfiguration(
          command: ["/nonexistent/sensor"], retry: Backoff(first: .milliseconds(1), max: .milliseconds(2))),
        every: .seconds(60), form: .lines, timeout: .seconds(1)
      ).source(on: thread) { report in reports.withLock { $0.append(report) } }.subscribe(taker)
      while sentences.count < 2 { try await Task.sleep(for: .milliseconds(1)) }
      #expect(sentences[0] == "cannot start sensor: posix_spawn: No such file or directory")
      taker.cancel()
    }
  }

  // MARK: Demand

  @Test func aRunIsMadeForEachRequestedEventAndNoneWithout() async throws {
    try await withSourceThread { thread in
      let (idle, taker) = (Taker(.none), Taker(.max(2)))
      poll("touch $F/started; echo $N", on: thread).subscribe(idle)
      let source = poll("echo $N", on: thread)
      source.subscribe(taker)
      #expect(await taker.next(2) == ["1", "2"])
      try await Task.sleep(for: .milliseconds(50))
      #expect(runs == 2 && access(folder.path("started"), F_OK) != 0)
      taker.request(.max(1))
      #expect(await taker.next(1) == ["3"])
      taker.cancel()
      idle.cancel()
    }
  }

  @Test func timeWithoutDemandDoesNotCountForLines() async throws {
    try await withSourceThread { thread in
      let taker = Taker(.max(1))
      let script = "echo a; while [ ! -e $F/go ]; do sleep 0.01; done; echo b; exec sleep 1000"
      poll(script, form: .lines, timeout: .milliseconds(300), on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["a"])
      let failures = sentences.count  // of shells that needed longer to begin
      try await Task.sleep(for: .milliseconds(600))
      #expect(sentences.count == failures)
      try folder.write([], to: "go")
      var line: [String]
      repeat {
        taker.request(.max(1))
        line = await taker.next(1)
      } while line == ["a"]
      #expect(line == ["b"])
      taker.request(.max(1))
      while sentences.isEmpty { try await Task.sleep(for: .milliseconds(1)) }
      #expect(sentences[0] == "sh did not end within 300 ms (timeout)")
      taker.cancel()
    }
  }

  @Test func aRefreshMakesARunNow() async throws {
    try await withSourceThread { thread in
      let refresh = SourceRefresh()
      let taker = Taker(.unlimited)
      poll("echo $N", every: .seconds(3600), refresh: refresh, on: thread).subscribe(taker)
      #expect(await taker.next(1) == ["1"])
      refresh.perform { #expect($0 == nil) }
      #expect(await taker.next(1) == ["2"])
      taker.cancel()
    }
  }

  @Test func aRunThatIsNotAdmittedIsNotMade() async throws {
    try await withSourceThread { thread in
      let answers = Shared([true, false])
      let taker = Taker(.unlimited)
      let schedules = Shared<[SourceSchedule]>([])
      let handover = SourceHandover(
        former: { SourceSchedule() }, changed: { schedule in schedules.withLock { $0.append(schedule) } })
      poll(
        "echo $N", admission: { decide in decide(answers.withLock { $0.isEmpty ? false : $0.removeFirst() }) },
        handover: handover, on: thread
      ).subscribe(taker)
      #expect(await taker.next(1) == ["1"])
      while !answers.withLock({ $0.isEmpty }) { try await Task.sleep(for: .milliseconds(1)) }
      try await Task.sleep(for: .milliseconds(20))
      #expect(runs == 1)
      #expect(schedules.withLock { $0.count == 1 && $0[0].slot != nil })
      taker.cancel()
    }
  }

  // MARK: Its place

  @Test func aNewSubscriptionWaitsForTheEndOfTheOldRun() async throws {
    try await withSourceThread { thread in
      let place = ProgramPlace()
      let (first, second) = (Taker(.unlimited), Taker(.unlimited))
      let old = #"trap 'sleep 0.2; : > "$F/ended"; exit' TERM; : > $F/began; while :; do sleep 0.01; done"#
      poll(old, in: place, on: thread).subscribe(first)
      while access(folder.path("began"), F_OK) != 0 { try await Task.sleep(for: .milliseconds(1)) }
      first.cancel()
      poll(#"[ -e "$F/ended" ] && echo alone"#, in: place, on: thread).subscribe(second)
      #expect(await second.next(1) == ["alone"])
      #expect(sentences.isEmpty)
      second.cancel()
    }
  }
}
