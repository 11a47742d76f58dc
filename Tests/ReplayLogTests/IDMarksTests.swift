import Dispatch
import Events
import Glibc
import Reactive
import StreamRuntime
import TestSupport
import Testing

@testable import ReplayLog

/// The marks of a stream's ids, which outlive its log.
@Suite struct IDMarksTests {
  private let boot = BootID(high: 1, low: 1)
  private let limits = EventLog.Limits(events: 100, bytes: 64 << 10)

  private func marks(
    in path: String, retryingAfter pause: DispatchTimeInterval = .seconds(10),
    report: @escaping @Sendable (String) -> Void = { Issue.record("\($0)") }
  ) -> IDMarks {
    let folder = open(path, O_RDONLY | O_DIRECTORY)
    defer { close(folder) }
    return IDMarks(in: folder, path: path, retryingAfter: pause, report: report)
  }

  private func marks(_ folder: TemporaryFolder) -> IDMarks { marks(in: folder.path) }

  @Test func marksSurviveTheProcess() throws {
    let folder = try TemporaryFolder()
    do {
      let marks = marks(folder)
      #expect(marks.mark(of: "a") == 0)
      marks.raise("a", to: 1000)
      marks.raise("a/b", to: 70)
      marks.raise("a", to: 999)
      marks.flush()
    }
    do {
      let marks = marks(folder)
      #expect(marks.mark(of: "a") == 1000 && marks.mark(of: "a/b") == 70 && marks.mark(of: "b") == 0)
      marks.settle("a", at: 500)
      marks.flush()
    }
    #expect(marks(folder).mark(of: "a") == 500)
    #expect(access(folder.path("ids.new"), F_OK) != 0)
  }

  @Test func raisingAMarkDoesNotWaitForTheDisk() async throws {
    let folder = try TemporaryFolder()
    let one = marks(folder)
    one.raise("a", to: 1000)
    one.raise("a", to: 2000)
    #expect(try await eventually { marks(folder).mark(of: "a") == 2000 })
  }

  @Test func invalidLinesOfTheFileAreIgnored() throws {
    let long = String(repeating: "x", count: 256)
    let lines = [
      "7 a", "rubbish", "", " ", "9", "-3 b", "99999999999999999999 b", "4611686018427387903 b", "5 c d", "6 a",
      "1 \(long)", "\0\0\0", "8 z",
    ]
    let folder = try TemporaryFolder(["ids": lines.joined(separator: "\n")])
    let reports = Locked<[String]>([])
    let marks = marks(in: folder.path) { report in reports.withLock { $0.append(report) } }
    #expect(marks.mark(of: "a") == 7 && marks.mark(of: "b") == 0 && marks.mark(of: "z") == 8)
    #expect(reports.withLock { $0 } == ["\(folder.path("ids")) has 8 lines that are not an id and a stream's name"])
    marks.raise("b", to: 3)
    marks.flush()
    #expect(self.marks(folder).mark(of: "a") == 7 && self.marks(folder).mark(of: "b") == 3)
  }

  /// What a former process has left, and what never comes from one.
  @Test(arguments: ["half of a file", "a FIFO", "a link"]) func whatHasTheNameOfAnUnfinishedFileIsReplaced(
    _ kind: String
  ) throws {
    let folder = try TemporaryFolder(["other": "1 a"])
    let unfinished = folder.path("ids.new")
    switch kind {
    case "a FIFO": #expect(mkfifo(unfinished, 0o600) == 0)
    case "a link": #expect(link(folder.path("other"), unfinished) == 0)
    default: try folder.write(Array("7 a".utf8), to: "ids.new")
    }
    let marks = marks(folder)
    marks.raise("b", to: 3)
    marks.flush()
    #expect(self.marks(folder).mark(of: "b") == 3 && access(unfinished, F_OK) != 0)
    var other = stat()
    #expect(stat(folder.path("other"), &other) == 0 && other.st_size == 3)
  }

  @Test func aWriteFailureIsReportedOnce() throws {
    let folder = try TemporaryFolder()
    let reports = Locked<[String]>([])
    #expect(mkdir(folder.path("ids.new"), 0o700) == 0)
    let marks = marks(in: folder.path) { report in reports.withLock { $0.append(report) } }
    for id in 1...5 as ClosedRange<UInt64> {
      marks.raise("a", to: id)
      marks.flush()
    }
    let sentence = "\(folder.path("ids")) cannot be written: File exists; ids may decrease after a kill"
    #expect(reports.withLock { $0 } == [sentence])
    #expect(rmdir(folder.path("ids.new")) == 0)
    marks.flush()
    #expect(self.marks(folder).mark(of: "a") == 5)
  }

  @Test func aFailedWriteIsRepeatedWithoutAnotherChange() async throws {
    let folder = try TemporaryFolder()
    let failures = Locked(0)
    #expect(mkdir(folder.path("ids.new"), 0o700) == 0)
    let marks = marks(in: folder.path, retryingAfter: .milliseconds(5)) { _ in failures.withLock { $0 += 1 } }
    marks.raise("a", to: 5)
    #expect(try await eventually { failures.withLock { $0 } > 0 })
    #expect(rmdir(folder.path("ids.new")) == 0)
    #expect(try await eventually { self.marks(folder).mark(of: "a") == 5 })
    marks.flush()
  }

  /// Another process may have used the path of a folder that was renamed.
  @Test func theMarksOfAnotherFolderAreMergedAndThoseOfItsFormerPathUntouched() throws {
    let one = try TemporaryFolder(["ids": "7 a\n9 b\n"])
    let two = try TemporaryFolder(["ids": "8 a\n8 b\n5 c\n"])
    let marks = marks(one)
    marks.raise("a", to: 7)
    let other = open(two.path, O_RDONLY | O_DIRECTORY)
    marks.move(to: other)
    close(other)
    marks.flush()
    #expect(marks.mark(of: "a") == 8 && marks.mark(of: "b") == 9 && marks.mark(of: "c") == 5)
    #expect(self.marks(two).mark(of: "a") == 8 && self.marks(two).mark(of: "b") == 9)
    #expect(self.marks(one).mark(of: "a") == 7 && self.marks(one).mark(of: "c") == 0)
    let away = one.path + ".away"
    let third = self.marks(one)
    #expect(rename(one.path, away) == 0 && mkdir(one.path, 0o700) == 0)
    third.raise("a", to: 100)
    third.flush()
    #expect(access(one.path("ids"), F_OK) != 0 && self.marks(in: away).mark(of: "a") == 100)
    #expect(rmdir(one.path) == 0 && rename(away, one.path) == 0)
  }

  @Test func idsAreReservedBeforeTheyAreAssigned() throws {
    let log = try makeLog(events: 10, bytes: 64 << 10)
    var reserved: [UInt64] = []
    log.reserveIDs(100) { reserved.append($0) }
    #expect(reserved == [200])
    for _ in 0..<1000 {
      log.append([[1], [2], [3]])
      #expect(log.endPosition <= reserved[reserved.count - 1])
    }
    #expect(reserved.count == 1 + 3000 / 51)
  }

  @Test func skippedIdsAreReservedAtOnce() throws {
    let log = try makeLog()
    var reserved: UInt64 = 0
    log.reserveIDs(100) { reserved = $0 }
    #expect(log.begin(at: 5000) && reserved == 5100)
    log.append([[1]])
    #expect(try LogRemains(memory: dup(log.descriptor)).endPosition == 5001)
  }

  /// Whatever the clock, and however the last process ended.
  @Test(arguments: [false, true]) func theLogAfterALostOneHasHigherIDs(isKilled: Bool) throws {
    let folder = try TemporaryFolder()
    let ahead = EventLoop.wallClock() + 7_200_000_000
    var end: UInt64 = 0
    do {
      let state = LogFolder(path: folder.path, boot: boot) { _, _, _ in }
      #expect(try state.remains(of: "a") == nil)
      let log = try #require(EventLog(name: "a", limits: limits, firstID: ahead))
      state.rememberIDs(of: log, "a")
      state.flushIDs()
      log.append([[1], [2]])
      end = log.endPosition
      if !isKilled { state.settleIDs(of: "a", at: end) }
      state.flushIDs()
    }
    let state = LogFolder(path: folder.path, boot: boot) { _, _, _ in }
    #expect(try state.remains(of: "a") == nil)
    let first = state.firstID(of: "a")
    #expect(isKilled ? first >= end : first == end)
    #expect(try state.makeLog(of: "a", limits: limits, takingOver: nil).endPosition == first)
    #expect(state.firstID(of: "b") < ahead)
  }

  @Test func aTruncatedLogContinuesAboveTheMark() throws {
    let folder = try TemporaryFolder()
    let ahead = EventLoop.wallClock() + 7_200_000_000
    do {
      let state = LogFolder(path: folder.path, boot: boot) { _, _, _ in }
      try state.makeLog(of: "a", limits: limits, takingOver: nil).append([[1]])
      state.settleIDs(of: "a", at: ahead)
      state.flushIDs()
    }
    let state = LogFolder(path: folder.path, boot: BootID(high: 1, low: 2)) { _, _, _ in }
    let left = try #require(try state.remains(of: "a"))
    #expect(left.isSalvaged && left.count == 1 && left.endPosition >= ahead)
  }
}
