import Events
import FoundationEssentials
import Glibc
import StreamRuntime
import TestSupport
import Testing

@testable import ReplayLog

@Suite struct LogFolderTests {
  private let limits = EventLog.Limits(events: 100, bytes: 64 << 10)
  private let boot = BootID(high: 1, low: 1)

  private func state(_ folder: TemporaryFolder, boot: BootID? = nil) -> LogFolder {
    LogFolder(path: folder.path, boot: boot ?? self.boot) { stream, reason, _ in Issue.record("\(stream): \(reason)") }
  }

  @Test func aStreamsFileHasAUniqueSafeName() {
    #expect(LogFolder.fileName(for: "clock") == "clock.log")
    #expect(LogFolder.fileName(for: "a/b.c") == "a%2Fb.c.log")
    #expect(["..", "/", "."].map { LogFolder.fileName(for: $0) } == ["...log", "%2F.log", "..log"])
    let long = ["/", "a", "b"].map { LogFolder.fileName(for: String(repeating: "/", count: 254) + $0) }
    #expect(Set(long).count == 3 && long.allSatisfy { $0.utf8.count < 255 - 4 && !$0.contains("/") })
  }

  @Test func aFileHasItsFullSizeAndIsPrivate() throws {
    let folder = try TemporaryFolder()
    let state = LogFolder(path: folder.path("made"), boot: boot) { _, _, _ in }
    defer {
      state.remove("a")
      rmdir(folder.path("made"))
    }
    _ = try state.makeLog(of: "a", limits: limits, takingOver: nil)
    var (file, made) = (stat(), stat())
    #expect(stat(folder.path("made/a.log"), &file) == 0 && stat(folder.path("made"), &made) == 0)
    #expect(file.st_mode & 0o777 == 0o600 && made.st_mode & 0o777 == 0o700)
    #expect(file.st_blocks * 512 >= LogLayout.byteCount(for: limits))
  }

  @Test func aClosedLogContinuesExactlyAfterAReboot() throws {
    let folder = try TemporaryFolder()
    do {
      let log = try state(folder).makeLog(of: "a", limits: limits, takingOver: nil)
      log.append([[1], [2]])
      log.close()
    }
    let next = state(folder, boot: BootID(high: 1, low: 2))
    let left = try #require(try next.remains(of: "a"))
    #expect(!left.isSalvaged && left.count == 2)
    let log = try next.log(of: left, limits: limits)
    #expect(log.element(at: log.firstPosition).data == [1])
    #expect(try next.remains(of: "b") == nil)
  }

  enum FileLoss: CaseIterable { case deletion, replacement, folder }

  /// Its events are not on disk any more, which nothing else would tell before a restart lacks them.
  @Test(arguments: FileLoss.allCases, [true, false])
  func aFileThatIsGoneWhileItIsInUseIsReportedOnce(loss: FileLoss, isAppended: Bool) async throws {
    let folder = try TemporaryFolder()
    let path = folder.path("state")
    let reports = Locked<[String]>([])
    let state = LogFolder(path: path, boot: boot) { stream, reason, _ in
      reports.withLock { $0.append("\(stream): \(reason)") }
    }
    let logs = try ["a", "b", "c"].map { name in
      let log = try state.makeLog(of: name, limits: limits, takingOver: nil)
      return try state.makeLog(of: name, limits: limits, takingOver: log)
    }
    defer { for name in ["a", "c"] { unlink("\(path)/\(name).log") } }
    state.remove("b")
    state.leave("c")
    for log in logs where isAppended {
      log.append([[1]])
      log.didGrow?()
    }
    switch loss {
    case .deletion: #expect(unlink("\(path)/a.log") == 0)
    case .replacement: #expect(rename("\(path)/c.log", "\(path)/a.log") == 0)
    case .folder:
      for name in ["a.log", "c.log"] { #expect(unlink("\(path)/\(name)") == 0) }
      #expect(rmdir(path) == 0)
      try folder.write([], to: "state")
    }
    if isAppended { #expect(try await eventually { !reports.withLock { $0.isEmpty } }) }
    for name in ["a", "b", "c"] { state.leave(name) }
    let expected = "a: \(path)/a.log was deleted, renamed or replaced, and a restart begins without this log"
    #expect(reports.withLock { $0 } == [expected])
    rmdir(path)
  }

  @Test func withoutABootIdAnUnclosedLogCountsAsTruncated() throws {
    let folder = try TemporaryFolder()
    let state = LogFolder(path: folder.path, boot: nil) { _, _, _ in }
    do {
      let log = try state.makeLog(of: "a", limits: limits, takingOver: nil)
      log.append([[1], [2]])
    }
    #expect(try #require(try state.remains(of: "a")).isSalvaged)
  }

  @Test func aFolderThatIsInUseIsRefusedUnchangedAndNamesTheProcess() throws {
    let folder = try TemporaryFolder()
    let one = state(folder)
    let log = try one.makeLog(of: "a", limits: limits, takingOver: nil)
    log.append([[1]])
    let other = state(folder)
    let refusal = LogRefusal("process \(getpid()) uses it", .wait)
    #expect(throws: refusal) { try other.remains(of: "a") }
    #expect(throws: refusal) { try other.makeLog(of: "b", limits: limits, takingOver: nil) }
    other.remove("a")
    #expect(try #require(try one.remains(of: "a")).count == 1)
  }

  @Test func whatHasTheNameOfAnUnfinishedLogIsReplaced() throws {
    let folder = try TemporaryFolder()
    for name in ["a.log.new", "b.log"] { #expect(mkfifo(folder.path(name), 0o600) == 0) }
    let state = state(folder)
    try state.makeLog(of: "a", limits: limits, takingOver: nil).append([[1]])
    #expect(try #require(try state.remains(of: "a")).count == 1)
    #expect(throws: LogRefusal("it is not a streamd log", .setAside("unreadable"))) { try state.remains(of: "b") }
  }

  /// The folder was renamed, and another process has locked one with its path.
  @Test func theFilesOfAnotherProcessStay() throws {
    let folder = try TemporaryFolder()
    let path = folder.path("state")
    let own = LogFolder(path: path, boot: boot) { _, _, _ in }
    _ = try own.makeLog(of: "a", limits: limits, takingOver: nil)
    #expect(rename(path, folder.path("moved")) == 0)
    let other = LogFolder(path: path, boot: boot) { _, _, _ in }
    _ = try other.makeLog(of: "a", limits: limits, takingOver: nil)
    own.remove("a")
    #expect(access("\(path)/a.log", F_OK) == 0 && access(folder.path("moved/a.log"), F_OK) != 0)
    other.remove("a")
    for name in [path, folder.path("moved")] { rmdir(name) }
  }

  /// A process that was killed between a rename and the sync of the folder leaves a name that a power failure takes back,
  /// with everything that was written to the new file since.
  @Test func namesFromAFormerProcessReachTheDiskBeforeAnyUse() throws {
    let folder = try TemporaryFolder(["ids.new": "7 a\n"])
    #expect(rename(folder.path("ids.new"), folder.path("ids")) == 0)
    let next = state(folder)
    var syncCount = 0
    next.syncFolder = {
      syncCount += 1
      return fsync($0)
    }
    #expect(try next.remains(of: "a") == nil)
    #expect(syncCount == 1)
    _ = try next.remains(of: "b")
    #expect(syncCount == 1)
    _ = try next.makeLog(of: "b", limits: limits, takingOver: nil)
    #expect(syncCount == 2)
  }

  @Test func theFileOfAnotherStreamIsRefused() throws {
    let folder = try TemporaryFolder()
    _ = try state(folder).makeLog(of: "a", limits: limits, takingOver: nil)
    #expect(rename(folder.path("a.log"), folder.path("b.log")) == 0)
    #expect(throws: LogRefusal("it is the log of \"a\"", .setAside("misplaced"))) {
      try state(folder).remains(of: "b")
    }
  }

  @Test(arguments: ["", "rubbish", String(repeating: "x", count: 100_000)])
  func anInvalidFileIsRefusedAndSetAside(content: String) throws {
    let folder = try TemporaryFolder(["a.log": content, "a.log.new": content])
    do {
      _ = try state(folder).remains(of: "a")
      Issue.record("it was not refused")
    } catch {
      #expect(error.remedy == .setAside("unreadable"))
    }
    let state = state(folder)
    #expect(throws: LogRefusal.self) { try state.makeLog(of: "a", limits: limits, takingOver: nil) }
    #expect(try state.setAside("a", "unreadable") == "a.log.unreadable")
    let log = try state.makeLog(of: "a", limits: limits, takingOver: nil)
    log.append([[7]])
    #expect(access(folder.path("a.log.new"), F_OK) != 0)
  }

  @Test(arguments: [-4096, -8, -1, 1, 8, 4096]) func aFileOfWrongLengthIsSetAside(difference: Int) throws {
    let folder = try TemporaryFolder()
    do {
      let log = try state(folder).makeLog(of: "a", limits: limits, takingOver: nil)
      log.append([[1], [2]])
      log.close()
    }
    #expect(truncate(folder.path("a.log"), off_t(LogLayout.byteCount(for: limits) + difference)) == 0)
    let refusal = #expect(throws: LogRefusal.self) { try state(folder).remains(of: "a") }
    #expect(refusal?.remedy == .setAside("unreadable"))
  }

  /// It would take the whole disk, or for long.
  @Test func noSpaceIsAllocatedForAFileOfWrongLength() throws {
    let folder = try TemporaryFolder()
    _ = try state(folder).makeLog(of: "a", limits: limits, takingOver: nil)
    var file = stat()
    #expect(stat(folder.path("a.log"), &file) == 0)
    let blocks = file.st_blocks
    #expect(truncate(folder.path("a.log"), off_t(64 << 20)) == 0)
    let refusal = #expect(throws: LogRefusal.self) { try state(folder).remains(of: "a") }
    #expect(refusal?.remedy == .setAside("unreadable"))
    #expect(stat(folder.path("a.log"), &file) == 0 && file.st_blocks == blocks)
  }

  @Test(arguments: [0, 4096, 40_000, 70_000]) func anUnreadableSectorIsRefused(offset: Int) throws {
    let folder = try TemporaryFolder()
    for stream in ["a", "b"] {
      let log = try state(folder).makeLog(of: stream, limits: limits, takingOver: nil)
      log.append([[1], [2]])
      log.close()
    }
    let failing = state(folder)
    var bad = stat()
    #expect(stat(folder.path("a.log"), &bad) == 0)
    failing.readFile = { descriptor, room, count, start in
      var file = stat()
      guard fstat(descriptor, &file) == 0, file.st_ino == bad.st_ino, start + count > offset else {
        return pread(descriptor, room, count, start)
      }
      guard start < offset else {
        errno = EIO
        return -1
      }
      return pread(descriptor, room, offset - start, start)
    }
    let refusal = LogRefusal("it cannot be read at byte \(offset): Input/output error", .setAside("unreadable"))
    #expect(throws: refusal) { try failing.remains(of: "a") }
    #expect(try #require(try failing.remains(of: "b")).count == 2)
  }

  @Test func aFileTruncatedDuringReadingIsRefused() throws {
    let folder = try TemporaryFolder()
    _ = try state(folder).makeLog(of: "a", limits: limits, takingOver: nil)
    let failing = state(folder)
    failing.readFile = { _, _, _, _ in 0 }
    #expect(throws: LogRefusal.self) { try failing.remains(of: "a") }
  }

  @Test func progressIsReportedWhileLargeFilesAreRead() throws {
    let folder = try TemporaryFolder()
    var count = 0
    let state = LogFolder(path: folder.path, boot: boot, progress: { count += 1 }) { _, _, _ in }
    let log = try state.makeLog(of: "a", limits: .init(events: 100, bytes: 16 << 20), takingOver: nil)
    log.append(EventBatch(repeating: [UInt8](repeating: 1, count: 1 << 20), count: 10))
    count = 0
    _ = try state.remains(of: "a")
    #expect(count >= 16 + 10)
  }

  @Test func aFileThatWasSetAsideIsNeverReplaced() throws {
    let folder = try TemporaryFolder(["a.log": "1", "b.log": "other"])
    let state = state(folder)
    #expect(try state.setAside("a", "version-9") == "a.log.version-9")
    #expect(access(folder.path("a.log"), F_OK) != 0)
    #expect(rename(folder.path("b.log"), folder.path("a.log")) == 0)
    #expect(throws: LogRefusal("a.log cannot be renamed to a.log.version-9: File exists", .leave)) {
      try state.setAside("a", "version-9")
    }
    var file = stat()
    #expect(stat(folder.path("a.log.version-9"), &file) == 0 && file.st_size == 1)
    #expect(stat(folder.path("a.log"), &file) == 0 && file.st_size == 5)
  }

  @Test func otherLimitsReplaceTheFile() throws {
    let folder = try TemporaryFolder()
    do {
      let log = try state(folder).makeLog(of: "a", limits: limits, takingOver: nil)
      log.append([[1], [2], [3]])
    }
    let larger = EventLog.Limits(events: 1000, bytes: 1 << 20)
    let left = try #require(try state(folder).remains(of: "a"))
    #expect(!left.fits(larger))
    do {
      let log = try state(folder).makeLog(of: "a", limits: larger, takingOver: left.log(), replacing: left)
      #expect(log.heldIDs.map { log.element(at: $0).data } == [[1], [2], [3]])
    }
    let again = try #require(try state(folder).remains(of: "a"))
    #expect(again.fits(larger) && again.count == 3)
  }

  enum Foreigner: CaseIterable { case another, continued, truncated, link, folder }

  /// What another process has stored under a stream's name may be in no other log.
  @Test(arguments: Foreigner.allCases)
  func aFileOfAnotherProcessIsNeitherReplacedNorRemoved(foreigner: Foreigner) throws {
    let folder = try TemporaryFolder()
    let (path, away) = (folder.path("state"), folder.path("away"))
    let one = LogFolder(path: path, boot: boot) { _, _, _ in }
    var log = try one.makeLog(of: "a", limits: limits, takingOver: nil)
    log.append([[1], [2]])
    one.leaveBehind(log, of: "a")
    #expect(one.hasLeftFile(of: "a") && !one.hasForeignFile(of: "a"))
    log = try #require(EventLog(name: "a", limits: limits, takingOver: log))
    // The folder is away while another process uses it, or another one in its place.
    #expect(rename(path, away) == 0)
    #expect(throws: LogRefusal.self) {
      try folder.write([], to: "state")
      return try one.makeLog(of: "a", limits: limits, takingOver: log)
    }
    one.releaseFormer()
    #expect(unlink(path) == 0)
    do {
      if foreigner != .another { #expect(rename(away, path) == 0) }
      let other = LogFolder(path: path, boot: boot) { _, _, _ in }
      let remains = try other.remains(of: "a")
      #expect((remains == nil) == (foreigner == .another))
      let theirs =
        try remains.map { try other.log(of: $0, limits: limits) }
        ?? other.makeLog(of: "a", limits: limits, takingOver: nil)
      if foreigner != .truncated { theirs.append([[7], [8]]) }
      if foreigner == .truncated { theirs.close() }
      if foreigner == .link {
        #expect(rename(path + "/a.log", path + "/b") == 0 && symlink("b", path + "/a.log") == 0)
      }
      if foreigner == .folder {
        #expect(rename(path + "/a.log", path + "/b") == 0 && mkdir(path + "/a.log", 0o700) == 0)
      }
    }
    let before = try content(of: path + (foreigner == .link || foreigner == .folder ? "/b" : "/a.log"))
    #expect(one.hasForeignFile(of: "a") && !one.hasLeftFile(of: "a"))
    let refusal = #expect(throws: LogRefusal.self) { try one.makeLog(of: "a", limits: limits, takingOver: log) }
    #expect(refusal?.remedy == .leave && refusal?.description.hasPrefix("a.log was written by another process") == true)
    one.remove("a")
    #expect(try content(of: path + (foreigner == .link || foreigner == .folder ? "/b" : "/a.log")) == before)
    #expect(access(path + "/a.log", F_OK) == 0 && access(path + "/a.log.new", F_OK) != 0)
    // It is moved away.
    #expect(rename(path + "/a.log", path + "/c") == 0)
    let again = try one.makeLog(of: "a", limits: limits, takingOver: log)
    #expect(again.heldIDs.map { again.element(at: $0).data } == [[1], [2]])
    for name in [path, away] {
      for file in ["a.log", "b", "ids"] { unlink("\(name)/\(file)") }
      unlink(name + "/c")
      rmdir(name + "/c")
      rmdir(name)
    }
  }

  private func content(of path: String) throws -> [UInt8] { [UInt8](try Data(contentsOf: URL(filePath: path))) }

  /// A log in it may be in use: another process would write to the same file.
  @Test func aFolderThatLosesItsNameStaysLockedWhileItsLogsAreInUse() throws {
    let folder = try TemporaryFolder()
    let (path, away) = (folder.path("state"), folder.path("away"))
    let one = LogFolder(path: path, boot: boot) { _, _, _ in }
    var log = try one.makeLog(of: "a", limits: limits, takingOver: nil)
    log.append([[1]])
    one.rememberIDs(of: log, "a")
    #expect(rename(path, away) == 0)
    #expect(try !one.enter())
    one.releaseFormer()
    let other = LogFolder(path: away, boot: boot) { _, _, _ in }
    #expect(throws: LogRefusal("process \(getpid()) uses it", .wait)) { try other.remains(of: "a") }
    other.forgetRefusal()
    // It comes back: the process's own lock is no obstacle.
    #expect(rename(away, path) == 0)
    #expect(try one.enter())
    #expect(rename(path, away) == 0)
    log = try one.makeLog(of: "a", limits: limits, takingOver: log)
    one.flushIDs()
    one.releaseFormer()
    #expect(try other.remains(of: "a")?.count == 1)
    #expect(access(path + "/ids", F_OK) == 0)
    for name in [path, away] {
      for file in ["a.log", "ids"] { unlink("\(name)/\(file)") }
      rmdir(name)
    }
  }

  /// Its user may have ended.
  @Test func aRefusedFolderIsTriedAgainOnRequest() throws {
    let folder = try TemporaryFolder()
    var one: LogFolder? = state(folder)
    #expect(try #require(one).enter())
    let other = state(folder)
    #expect(throws: LogRefusal.self) { try other.enter() }
    one = nil
    #expect(throws: LogRefusal.self) { try other.enter() }
    other.forgetRefusal()
    #expect(try other.enter())
  }

  @Test func aFullDiskIsReportedAndLeavesNoFile() async {
    await #expect(processExitsWith: .success) {
      signal(SIGXFSZ, SIG_IGN)
      var limit = rlimit(rlim_cur: 1 << 20, rlim_max: 1 << 20)
      setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
      let folder = try TemporaryFolder()
      let state = LogFolder(path: folder.path, boot: nil) { _, _, _ in }
      #expect(throws: LogRefusal("2 MiB cannot be allocated: File too large", .leave)) {
        try state.makeLog(of: "a", limits: .init(events: 64, bytes: 2 << 20), takingOver: nil)
      }
      #expect(access(folder.path("a.log"), F_OK) != 0 && access(folder.path("a.log.new"), F_OK) != 0)
    }
  }
}
