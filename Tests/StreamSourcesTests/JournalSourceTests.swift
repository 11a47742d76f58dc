import Events
import Glibc
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import StreamSources

@Suite(.timeLimit(.minutes(10))) struct JournalSourceTests {
  let files: JournalFiles
  let reports = Shared<[SourceReport]>([])
  /// The checkpoint of the last batch.
  let kept = Shared<Checkpoint?>(nil)
  /// The losses of all batches.
  let losses = Shared<[EventLoss]>([])

  init() throws { files = try JournalFiles() }

  private func source(
    _ matches: [String] = [], resumes: Bool = true, on thread: SourceThread,
    _ change: (inout JournalConfiguration) -> Void = { _ in }
  ) throws -> some Publisher<EventBatch, Never> {
    var configuration = JournalConfiguration(
      directory: files.folder.path, matches: matches, beginning: .at(0),
      retry: Backoff(first: .milliseconds(10), max: .milliseconds(20)))
    change(&configuration)
    let executable = try ChildProcess.built("streamd")
    return JournalSource(configuration).source(
      on: thread, report: { [reports] report in reports.withLock { $0.append(report) } }
    ) {
      ($0.name, $0.executable) = ("test", executable)
      if resumes { $0.checkpoint = { [kept] _ in kept.withLock { $0 } } }
    }
    .handleEvents(receiveOutput: { [kept, losses] batch in
      if let checkpoint = batch.checkpoint { kept.withLock { $0 = checkpoint } }
      if let loss = batch.loss { losses.withLock { $0.append(loss) } }
    })
  }

  private var sentences: [String] {
    reports.withLock { $0.compactMap { if case .failing(let sentence, _, _) = $0 { sentence } else { nil } } }
  }

  private var dropped: [String] {
    reports.withLock { $0.compactMap { if case .lost(let sentence, _) = $0 { sentence } else { nil } } }
  }

  /// The messages of the next events, in batches of any size.
  private func messages(_ taker: Taker, _ count: Int) async throws -> [String] {
    var found: [String] = []
    while found.count < count {
      for batch in await taker.next(1) {
        found += try batch.split(separator: "|").map { try JSONTree(String($0))["MESSAGE"]?.text ?? "none" }
      }
    }
    return found
  }

  private func subscribe(
    _ matches: [String] = [], resumes: Bool = true, on thread: SourceThread,
    _ demand: Subscribers.Demand = .unlimited,
    _ change: (inout JournalConfiguration) -> Void = { _ in }
  ) throws -> Taker {
    let taker = Taker(demand)
    try source(matches, resumes: resumes, on: thread, change).subscribe(taker)
    return taker
  }

  private func numbers(_ range: Range<Int>) -> [String] { range.map { "m\($0)" } }

  // MARK: Form

  /// A field's value of a kind that is shown in a way of its own.
  private func oddValue(_ random: inout some RandomNumberGenerator) -> [UInt8] {
    let texts = [
      "", "plain", "tab\tand\nline", "quote\" and \\", "é €", "\u{85}", "\u{1F600}", "\r\n",
      "\u{7F}", "\u{200B}", "null\0", String(repeating: "long ", count: 2000), "=", "a=b",
    ]
    switch Int.random(in: 0..<4, using: &random) {
    case 0: return (0..<Int.random(in: 0..<40, using: &random)).map { _ in UInt8.random(in: 0...255, using: &random) }
    case 1:
      // Valid and invalid UTF-8 that is close to the borders of its ranges.
      let borders: [[UInt8]] = [
        [0xC2, 0x80], [0xC1, 0xBF], [0xC2, 0xA0], [0xE0, 0x9F, 0xBF], [0xE0, 0xA0, 0x80], [0xED, 0xA0, 0x80],
        [0xEF, 0xBF, 0xBE], [0xEF, 0xB7, 0xAF], [0xEF, 0xB7, 0xB0], [0xF0, 0x8F, 0xBF, 0xBF], [0xF0, 0x9F, 0xBF, 0xBF],
        [0xF0, 0x90, 0x80, 0x80], [0xEF, 0xB7, 0x90], [0xF4, 0x8F, 0xBF, 0xBD], [0xF4, 0x90, 0x80, 0x80], [0xE2, 0x82],
        [0xF5, 0x80, 0x80, 0x80],
      ]
      return Array("x".utf8) + (borders.randomElement(using: &random) ?? []) + Array("y".utf8)
    default: return Array((texts.randomElement(using: &random) ?? "").utf8)
    }
  }

  @Test func eventsEqualWhatJournalctlShows() async throws {
    var random = SplitMix(seed: 7)
    let names = ["MESSAGE", "A", "B_1", "_C", "PRIORITY", "X9"]
    let entries = (0..<300).map { _ in
      (0..<Int.random(in: 1..<9, using: &random)).map { _ -> JournalFiles.Field in
        (names.randomElement(using: &random) ?? "A", oddValue(&random))
      }
    }
    try await files.write(entries)
    let shown = try await files.shown()
    #expect(shown.count == 300)
    try await withSourceThread { thread in
      let taker = Taker(.unlimited)
      let events = Shared<[[UInt8]]>([])
      try source(on: thread).handleEvents(receiveOutput: { batch in events.withLock { $0 += batch } }).subscribe(taker)
      while events.withLock({ $0.count }) < 300 { _ = await taker.next(1) }
      for (event, expected) in zip(events.withLock { $0 }, shown) {
        #expect(try JSONTree(String(decoding: event, as: UTF8.self)) == expected)
      }
      taker.cancel()
    }
  }

  // MARK: Which entries

  @Test func fieldsAreAndAndValuesOfOneFieldAreOr() async throws {
    try await files.write(
      (0..<40).map { number in
        [
          ("MESSAGE", Array("m\(number)".utf8)), ("PRIORITY", Array("\(number % 8)".utf8)),
          ("UNIT", Array((number % 2 == 0 ? "a" : "b").utf8)),
        ]
      })
    try await withSourceThread { thread in
      let taker = try subscribe(["UNIT=a", "PRIORITY=1", "PRIORITY=2", "PRIORITY=4"], on: thread)
      #expect(try await messages(taker, 10) == (0..<40).filter { [2, 4].contains($0 % 8) }.map { "m\($0)" })
      taker.cancel()
    }
  }

  @Test func aNewStreamBeginsWithNewEntriesOrAtATime() async throws {
    let now = UInt64(time(nil)) * 1_000_000
    let hour = Int((now - JournalFiles.start) / 1000) - 3_600_000
    try await files.write(messages: ["old"])
    try await files.write(messages: ["hour"], from: hour)
    try await withSourceThread { thread in
      let future = Int((now - JournalFiles.start) / 1000) + 60_000
      let cases: [(JournalConfiguration.Beginning, [String])] = [
        (.before(.zero), []), (.before(.seconds(7200)), ["hour"]), (.at(JournalFiles.start), ["old", "hour"]),
        (.at(JournalFiles.start + 1), ["hour"]),
      ]
      let takers = try cases.map { beginning, _ in
        try subscribe(resumes: false, on: thread) { $0.beginning = beginning }
      }
      try await files.write(messages: ["new"], from: future)
      for (taker, (_, expected)) in zip(takers, cases) {
        #expect(try await messages(taker, expected.count + 1) == expected + ["new"])
        taker.cancel()
      }
    }
  }

  @Test func entriesOfTheDaemonAreLeftOut() async throws {
    let file = fopen("/proc/self/comm", "r")
    defer { if let file { fclose(file) } }
    var line = [CChar](repeating: 0, count: 64)
    fgets(&line, 64, file)
    let command = String(decoding: line.prefix { $0 != 0 && $0 != 10 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    func entry(_ message: String, _ command: String, _ user: UInt32) -> [JournalFiles.Field] {
      [("MESSAGE", Array(message.utf8)), ("_COMM", Array(command.utf8)), ("_UID", Array("\(user)".utf8))]
    }
    try await files.write([
      entry("own", command, geteuid()), entry("user", command, geteuid() + 1), entry("own", command, geteuid()),
      entry("command", "other", geteuid()), [("MESSAGE", Array("last".utf8))],
    ])
    try await withSourceThread { thread in
      let taker = try subscribe(on: thread)
      #expect(try await messages(taker, 3) == ["user", "command", "last"])
      taker.cancel()
    }
  }

  @Test func ownEntriesAreThoseOfTheUnitOrOfTheCommandAndUser() {
    func author(_ fields: String...) -> OwnJournalEntries.Author {
      var author = OwnJournalEntries.Author()
      for field in fields { author.note(Array(field.utf8).span) }
      return author
    }
    var own = OwnJournalEntries(command: Array("streamd".utf8), user: Array("7".utf8))
    #expect(!own.contains(author()) && !own.contains(author("_COMM=streamd")) && !own.contains(author("_UID=7")))
    #expect(own.contains(author("_COMM=streamd", "_UID=7")))
    #expect(!own.contains(author("_SYSTEMD_UNIT=streamd.service", "_UID=7")))
    own.unit = Array("streamd.service".utf8)
    #expect(own.contains(author("_SYSTEMD_UNIT=streamd.service")))
    #expect(!own.contains(author("SYSTEMD_UNIT=streamd.service", "UNIT=streamd.service")))
    own.unit = []
    own.userUnit = Array("s.service".utf8)
    #expect(own.contains(author("_SYSTEMD_USER_UNIT=s.service", "_UID=7")))
    #expect(!own.contains(author("_SYSTEMD_USER_UNIT=s.service", "_UID=8")))
    own = OwnJournalEntries(command: [], user: Array("7".utf8))
    #expect(!own.contains(author("_UID=7")))
  }

  // MARK: Position

  @Test func aSubscriptionContinuesAfterTheLastEntryAlsoInOtherFiles() async throws {
    try await files.write(messages: numbers(0..<10))
    try await withSourceThread { thread in
      let first = try subscribe(on: thread)
      #expect(try await messages(first, 10) == numbers(0..<10))
      // While it reads.
      try await files.write(messages: numbers(10..<12), from: 10)
      #expect(try await messages(first, 2) == ["m10", "m11"])
      #expect(rename(files.folder.path("system.journal"), files.folder.path("system@1.journal")) == 0)
      try await files.write(messages: numbers(12..<14), from: 12)
      #expect(try await messages(first, 2) == ["m12", "m13"])
      first.cancel()
      // And while it does not.
      try await files.write(messages: numbers(14..<16), from: 14)
      let second = try subscribe(on: thread)
      #expect(try await messages(second, 2) == ["m14", "m15"])
      second.cancel()
      #expect(losses.withLock { $0 } == [] && sentences.isEmpty)
    }
  }

  @Test func batchesOfOneEntryRepeatNoneAndLoseNoneOverManySubscriptions() async throws {
    try await files.write(messages: numbers(0..<30))
    try await withSourceThread { thread in
      var all: [String] = []
      while all.count < 30 {
        let taker = try subscribe(on: thread, .max(3)) { $0.batchEvents = 1 }
        all += try await messages(taker, 3)
        taker.cancel()
      }
      #expect(all == numbers(0..<30))
    }
  }

  @Test func otherMatchesContinueAtThePosition() async throws {
    func entry(_ number: Int) -> [JournalFiles.Field] {
      [("MESSAGE", Array("m\(number)".utf8)), ("K", Array((number % 2 == 0 ? "even" : "odd").utf8))]
    }
    try await files.write((0..<4).map(entry))
    try await withSourceThread { thread in
      let first = try subscribe(["K=even"], on: thread, .max(1))
      #expect(try await messages(first, 2) == ["m0", "m2"])
      first.cancel()
      try await files.write((4..<6).map(entry), from: 4)
      let second = try subscribe(["K=odd"], on: thread)
      #expect(try await messages(second, 2) == ["m3", "m5"])
      second.cancel()
      #expect(losses.withLock { $0 } == [])
    }
  }

  @Test(arguments: [[], ["K=1"]]) func entriesThatWereRemovedUnreadAreALoss(matches: [String]) async throws {
    func entries(_ range: Range<Int>) -> [[JournalFiles.Field]] {
      range.map { [("MESSAGE", Array("m\($0)".utf8)), ("K", [0x31])] }
    }
    try await files.write(entries(0..<4), to: "a.journal")
    try await files.write(entries(4..<8), from: 4, to: "b.journal")
    try await withSourceThread { thread in
      let first = try subscribe(matches, on: thread, .max(2)) { $0.batchEvents = 1 }
      #expect(try await messages(first, 2) == ["m0", "m1"])
      first.cancel()
      unlink(files.folder.path("a.journal"))
      let second = try subscribe(matches, on: thread, .max(1)) { $0.batchEvents = 1 }
      #expect(try await messages(second, 1) == ["m4"])
      let loss: EventLoss = matches.isEmpty ? .unknown : .possible
      #expect(losses.withLock { $0 } == [loss])
      // Also while the journal is open, but not read.
      try await files.write(entries(8..<10), from: 8, to: "c.journal")
      unlink(files.folder.path("b.journal"))
      second.request(.unlimited)
      #expect(try await messages(second, 2) == ["m8", "m9"])
      #expect(losses.withLock { $0 } == [loss, loss])
      let missed = reports.withLock { $0.count { if case .missed = $0 { true } else { false } } }
      #expect(missed == 2 && reports.withLock { $0.last } == .current)
      second.cancel()
    }
  }

  @Test func aMarkKeepsThePositionOfAStreamThatFewEntriesFit() async throws {
    try await files.write([[("MESSAGE", Array("rare".utf8)), ("K", [0x31])]], to: "a.journal")
    try await files.write(messages: numbers(1..<9), from: 1, to: "b.journal")
    try await withSourceThread { thread in
      let first = try subscribe(["K=1"], on: thread)
      #expect(try await messages(first, 1) == ["rare"])
      first.cancel()
      // Its entry is gone, but not the mark, which a position without an event has.
      let position = Shared(kept.withLock { $0 })
      kept.withLock { $0 = nil }
      let second = try subscribe(["K=2"], on: thread)
      #expect(await second.next(1) == [""])
      second.cancel()
      #expect(kept.withLock { $0 } != position.withLock { $0 })
      unlink(files.folder.path("a.journal"))
      try await files.write([[("MESSAGE", Array("next".utf8)), ("K", [0x31])]], from: 9, to: "b.journal")
      let third = try subscribe(["K=1"], on: thread)
      #expect(try await messages(third, 1) == ["next"])
      #expect(losses.withLock { $0 } == [])
      third.cancel()
    }
  }

  // MARK: Demand

  @Test func withoutDemandNothingIsReadAndTheJournalIsClosed() async throws {
    try await files.write(messages: numbers(0..<9))
    try await withSourceThread { thread in
      let taker = try subscribe(on: thread, .max(2)) { ($0.batchEvents, $0.restTime) = (1, .milliseconds(20)) }
      #expect(try await messages(taker, 2) == ["m0", "m1"])
      func isOpen() -> Bool { hasDescriptor(under: files.folder.path) }
      while isOpen() { try await Task.sleep(for: .milliseconds(5)) }
      #expect(taker.count == 2)
      taker.request(.max(3))
      #expect(try await messages(taker, 3) == ["m2", "m3", "m4"])
      taker.request(.unlimited)
      #expect(try await messages(taker, 4) == numbers(5..<9))
      #expect(isOpen())
      // Demand that is taken back is none.
      taker.retract()
      while isOpen() { try await Task.sleep(for: .milliseconds(5)) }
      try await files.write(messages: ["m9"], from: 9)
      taker.request(.max(1))
      #expect(try await messages(taker, 1) == ["m9"])
      #expect(sentences.isEmpty)
      taker.cancel()
      while isOpen() { try await Task.sleep(for: .milliseconds(5)) }
    }
  }

  /// Whether a child of this process has a file of that folder open.
  private func hasDescriptor(under path: String) -> Bool {
    names(in: "/proc").compactMap { pid_t($0) }.contains { id in
      names(in: "/proc/\(id)/fd").contains { name in
        var target = [CChar](repeating: 0, count: 512)
        let count = readlink("/proc/\(id)/fd/\(name)", &target, 511)
        return count > 0
          && String(decoding: target.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self).hasPrefix(path + "/")
      }
    }
  }

  private func names(in path: String) -> [String] {
    guard let folder = opendir(path) else { return [] }
    defer { closedir(folder) }
    var names: [String] = []
    while let entry = readdir(folder) {
      names.append(
        withUnsafePointer(to: &entry.pointee.d_name) {
          $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        })
    }
    return names
  }

  // MARK: Failing

  @Test func aMissingJournalIsAFailureUntilItIsThere() async throws {
    try await withSourceThread { thread in
      let place = files.folder.path("later")
      let taker = try subscribe(on: thread) { $0.directory = place }
      while sentences.isEmpty { try await Task.sleep(for: .milliseconds(5)) }
      #expect(sentences[0] == "there is no journal in \(place); is systemd-journald running?")
      mkdir(place, 0o700)
      try await files.write(messages: ["there"], to: "later/system.journal")
      #expect(try await messages(taker, 1) == ["there"])
      let isRecovered = reports.withLock { $0.contains { if case .recovered = $0 { true } else { false } } }
      #expect(isRecovered)
      taker.cancel()
      unlink(place + "/system.journal")
      rmdir(place)
    }
  }

  @Test func aFileThatIsCutOffWhileItIsReadCostsItsEntriesOnly() async throws {
    try await files.write(messages: numbers(0..<2000), to: "a.journal")
    try await withSourceThread { thread in
      let taker = try subscribe(on: thread, .max(1)) { ($0.batchEvents, $0.restTime) = (1, .seconds(60)) }
      #expect(try await messages(taker, 1) == ["m0"])
      #expect(truncate(files.folder.path("a.journal"), 4096) == 0)
      try await files.write(messages: ["m2000"], from: 2000, to: "b.journal")
      taker.request(.unlimited)
      var last = ""
      while last != "m2000" { last = try await messages(taker, 1).last ?? "" }
      #expect(sentences.isEmpty)
      taker.cancel()
    }
  }

  @Test func aProcessThatIsKilledIsAFailureAndRepeatsNothing() async throws {
    try await files.write(messages: numbers(0..<3))
    try await withSourceThread { thread in
      let taker = try subscribe(on: thread)
      #expect(try await messages(taker, 3) == numbers(0..<3))
      for id in names(in: "/proc").compactMap({ pid_t($0) }) {
        let isReader = names(in: "/proc/\(id)/fd").contains { name in
          var target = [CChar](repeating: 0, count: 512)
          let count = readlink("/proc/\(id)/fd/\(name)", &target, 511)
          return count > 0
            && target.prefix(count).elementsEqual(files.folder.path("system.journal").utf8.map { CChar($0) })
        }
        if isReader { kill(id, SIGKILL) }
      }
      while sentences.isEmpty { try await Task.sleep(for: .milliseconds(5)) }
      #expect(sentences[0] == "the process that reads the journal was terminated by SIGKILL")
      try await files.write(messages: ["m3"], from: 3)
      #expect(try await messages(taker, 1) == ["m3"])
      taker.cancel()
    }
  }

  // MARK: Hostile entries

  @Test func entriesOverTheLimitAreDroppedAndReported() async throws {
    let huge: [UInt8] = Array(repeating: 0x61, count: 3 << 20)  // compressed in the file
    let many: [JournalFiles.Field] = (0..<1000).map { ("F\($0)", Array("value".utf8)) }
    let binary: [UInt8] = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 2_654_435_761 >> 7) }
    try await files.write([
      [("MESSAGE", huge)], [("MESSAGE", Array("a".utf8))] + many, [("MESSAGE", binary)],
      [("MESSAGE", Array("b".utf8)), ("X", Array(repeating: 0x62, count: 60_000))],
    ])
    try await withSourceThread { thread in
      let taker = try subscribe(on: thread) { $0.maximumEventBytes = 64 << 10 }
      #expect(try await messages(taker, 2) == ["a", "b"])
      #expect(dropped == Array(repeating: "an entry over 64 KiB was left out (max_body)", count: 2))
      #expect(reports.withLock { $0.last } == .current)
      taker.cancel()
      // All of them, and each in a batch of its own.
      kept.withLock { $0 = nil }
      let whole = try subscribe(on: thread)
      #expect(await whole.next(3).map { $0.utf8.count > 3000 } == [true, true, true])
      whole.cancel()
    }
  }
}

@Suite struct JournalFormTests {
  private func text(_ fields: [String], limit: Int = .max) -> JournalEntryText {
    var text = JournalEntryText(cursor: Array("c".utf8), realtime: 1, monotonic: 2, bootID: "b", limit: limit)
    for field in fields { text.add(Array(field.utf8).span) }
    return text
  }

  @Test func fieldsAreInTheOrderOfTheEntry() {
    let head = #"{"__CURSOR":"c","__REALTIME_TIMESTAMP":"1","__MONOTONIC_TIMESTAMP":"2","_BOOT_ID":"b""#
    #expect(String(decoding: text([]).json(), as: UTF8.self) == head + "}")
    let json = text(["B=1", "A=x\ty", "B=\r", "_BOOT_ID=other", "none", "=x", "lower=1", "__CURSOR=x"]).json()
    #expect(String(decoding: json, as: UTF8.self) == head + #","B":["1",[13]],"A":"x\ty"}"#)
  }

  @Test func nothingIsAddedOverTheLimit() {
    #expect(!text(["A=1"], limit: 1000).isTooLarge)
    #expect(text(["A=\(String(repeating: "x", count: 2000))"], limit: 1000).isTooLarge)
    #expect(text(["A=\(String(repeating: "\r", count: 1 << 20))"], limit: 1000).isTooLarge)
  }

  @Test func aCursorIsFollowedByTheNextOfItsSequenceOnly() throws {
    let one = try #require(JournalCursor(Array("s=ab;i=1f;b=0;m=1;t=2;x=3".utf8)))
    #expect(one.isFollowed(by: JournalCursor(Array("i=20;s=ab".utf8))))
    #expect(!one.isFollowed(by: one) && !one.isFollowed(by: nil))
    #expect(!one.isFollowed(by: JournalCursor(Array("s=ab;i=21".utf8))))
    #expect(!one.isFollowed(by: JournalCursor(Array("s=ac;i=20".utf8))))
    for odd in ["", "s=1", "i=1", "s=a;i=", "s=a;i=xyz", ";;=;", "s=a;i=11111111111111111"] {
      #expect(JournalCursor(Array(odd.utf8)) == nil, "\(odd)")
    }
  }

  @Test func messagesAndValuesSurvive() {
    let messages: [JournalMessage] = [
      .opened, .event([1, 2]), .event([]), .end(cursor: Array("c".utf8)), .end(cursor: []), .lost(.unknown),
      .lost(.possible), .dropped("d"), .limited("l"), .failed("f"),
    ]
    for message in messages { #expect(JournalMessage(message.encoded[...]) == message) }
    #expect(JournalMessage([]) == nil && JournalMessage([9]) == nil)
    #expect(JournalMessage(([2] + [UInt8](repeating: 0x61, count: 1025))[...]) == nil)
    var setup = JournalSetup()
    #expect(JournalSetup(values: setup.values) == setup)
    (setup.directory, setup.cursor, setup.start, setup.matches) = ("/d", Array("c".utf8), 5, ["A=", "B=x y"])
    #expect(JournalSetup(values: setup.values) == setup)
    #expect(JournalSetup(values: []) == nil && JournalSetup(values: ["", "", "x", "1", "1", "1"]) == nil)
  }
}
