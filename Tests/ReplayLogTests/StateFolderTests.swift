import Glibc
import TestSupport
import Testing

@testable import ReplayLog

@Suite struct StateFolderTests {
  private let limits = EventLog.Limits(events: 100, bytes: 64 << 10)
  private let boot = BootID(high: 1, low: 1)

  private func state(_ folder: TemporaryFolder, boot: BootID? = nil) -> StateFolder {
    StateFolder(path: folder.path, boot: boot ?? self.boot) { stream, reason in Issue.record("\(stream): \(reason)") }
  }

  @Test func aStreamsFileHasASafeNameOfItsOwn() {
    #expect(StateFolder.fileName(for: "clock") == "clock.log")
    #expect(StateFolder.fileName(for: "a/b.c") == "a%2Fb.c.log")
    #expect(["..", "/", "."].map { StateFolder.fileName(for: $0) } == ["...log", "%2F.log", "..log"])
    let long = ["/", "a", "b"].map { StateFolder.fileName(for: String(repeating: "/", count: 254) + $0) }
    #expect(Set(long).count == 3 && long.allSatisfy { $0.utf8.count < 255 - 4 && !$0.contains("/") })
  }

  @Test func aLogHasItsWholeRoomOnTheDiskAndIsTheOwnersAlone() throws {
    let folder = try TemporaryFolder()
    let state = StateFolder(path: folder.path("made"), boot: boot) { _, _ in }
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

  @Test func whatIsClosedGoesOnExactlyAfterTheNextBoot() throws {
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

  @Test func withoutABootThatCanBeToldALogThatWasNotClosedWasCutOff() throws {
    let folder = try TemporaryFolder()
    let state = StateFolder(path: folder.path, boot: nil) { _, _ in }
    do {
      let log = try state.makeLog(of: "a", limits: limits, takingOver: nil)
      log.append([[1], [2]])
    }
    #expect(try #require(try state.remains(of: "a")).isSalvaged)
  }

  @Test func aFolderThatAnotherUsesIsRefusedAndLeftAsItIs() throws {
    let folder = try TemporaryFolder()
    let one = state(folder)
    let log = try one.makeLog(of: "a", limits: limits, takingOver: nil)
    log.append([[1]])
    let other = state(folder)
    let refusal = LogRefusal("another process uses it", isWorthless: false)
    #expect(throws: refusal) { try other.remains(of: "a") }
    #expect(throws: refusal) { try other.makeLog(of: "b", limits: limits, takingOver: nil) }
    other.remove("a")
    #expect(try #require(try one.remains(of: "a")).count == 1)
  }

  @Test func theFileOfAnotherStreamIsRefused() throws {
    let folder = try TemporaryFolder()
    _ = try state(folder).makeLog(of: "a", limits: limits, takingOver: nil)
    #expect(rename(folder.path("a.log"), folder.path("b.log")) == 0)
    #expect(throws: LogRefusal("it is the log of \"a\"")) { try state(folder).remains(of: "b") }
  }

  @Test(arguments: ["", "rubbish", String(repeating: "x", count: 100_000)])
  func rubbishIsRefusedAndReplaced(content: String) throws {
    let folder = try TemporaryFolder(["a.log": content, "a.log.new": content])
    do {
      _ = try state(folder).remains(of: "a")
      Issue.record("it was not refused")
    } catch {
      #expect(error.isWorthless)
    }
    let log = try state(folder).makeLog(of: "a", limits: limits, takingOver: nil)
    log.append([[7]])
    #expect(access(folder.path("a.log.new"), F_OK) != 0)
  }

  @Test func otherLimitsMakeANewFileInPlaceOfTheOldOne() throws {
    let folder = try TemporaryFolder()
    do {
      let log = try state(folder).makeLog(of: "a", limits: limits, takingOver: nil)
      log.append([[1], [2], [3]])
    }
    let larger = EventLog.Limits(events: 1000, bytes: 1 << 20)
    let left = try #require(try state(folder).remains(of: "a"))
    #expect(!left.fits(larger))
    do {
      let log = try state(folder).makeLog(of: "a", limits: larger, takingOver: left.log())
      #expect(log.heldIDs.map { log.element(at: $0).data } == [[1], [2], [3]])
    }
    let again = try #require(try state(folder).remains(of: "a"))
    #expect(again.fits(larger) && again.count == 3)
  }

  @Test func aDiskWithoutRoomIsToldAndNothingIsLeftThere() async {
    await #expect(processExitsWith: .success) {
      signal(SIGXFSZ, SIG_IGN)
      var limit = rlimit(rlim_cur: 1 << 20, rlim_max: 1 << 20)
      setrlimit(__rlimit_resource_t(RLIMIT_FSIZE.rawValue), &limit)
      let folder = try TemporaryFolder()
      let state = StateFolder(path: folder.path, boot: nil) { _, _ in }
      #expect(throws: LogRefusal("2 MiB cannot be had: File too large", isWorthless: false)) {
        try state.makeLog(of: "a", limits: .init(events: 64, bytes: 2 << 20), takingOver: nil)
      }
      #expect(access(folder.path("a.log"), F_OK) != 0 && access(folder.path("a.log.new"), F_OK) != 0)
    }
  }
}
