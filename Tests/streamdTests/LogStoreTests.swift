import FoundationEssentials
import Systemd
import TestSupport
import Testing

@testable import streamd

struct LogStoreTests {
  /// A kill would otherwise let the next log of the stream assign the same ids.
  @Test func theDiskHasTheIDsOfANewLogBeforeItIsUsed() throws {
    let folder = try TemporaryFolder()
    var server = Configuration.Server()
    server.state = folder.path
    let store = LogStore(server, stored: [], manager: ServiceManager(), journal: Journal(level: .error))
    var stream = Configuration.Stream(name: "s")
    stream.keep = .no
    try store.lockFolder(for: [stream])
    let log = try store.log(of: stream).log
    store.secure()
    let line = try String(contentsOfFile: folder.path("ids"), encoding: .utf8).split(separator: " ")
    let bound = try #require(line.first.flatMap { UInt64($0) })
    #expect(line.last == "s\n" && bound > log.nextOwnID)
  }
}
