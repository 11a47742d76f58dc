import Glibc
import StreamSources
import TestSupport
import Testing

@testable import streamd

/// Programs in home directories, which the unit may not see.
struct HomeDirectoriesTests {
  @Test(arguments: ["yes", "tmpfs", "read-only", "no", nil])
  func aCheckNamesProgramsThatTheUnitHides(protection: String?) throws {
    let text = "[streams.a]\nexec.command = [\"/run/user/1000/sensor\"]\n[streams.b]\nexec.command = [\"/bin/date\"]"
    let configuration = try parse(text)
    let remark = HomeDirectories.remark(on: configuration) { protection }
    let isHidden = ["yes", "tmpfs"].contains(protection)
    #expect(
      remark?.hasPrefix(
        "streamd.service does not see programs in home directories (ProtectHome=\(protection ?? "")) of: a; ")
        == (isHidden ? true : nil))
    let other = try parse("[streams.b]\nexec.command = [\"/bin/date\"]")
    #expect(HomeDirectories.remark(on: other) { "yes" } == nil)
  }

  @Test func aCheckInTheUnitSaysThatItHidesHomeDirectories() throws {
    let folder = try TemporaryFolder()
    mkdir(folder.path("home"), 0o700)
    func hint() -> String { HomeDirectories.hint(on: folder.path("home/u/sensor"), parents: [folder.path("home")]) }
    #expect(hint().isEmpty)
    chmod(folder.path("home"), 0)
    #expect(hint().hasPrefix("; home directories are hidden here (ProtectHome=): ProtectHome=read-only in a drop-in"))
    #expect(HomeDirectories.hint(on: "/opt/sensor", parents: [folder.path("home")]).isEmpty)
    rmdir(folder.path("home"))
  }
}
