import Testing

@testable import Systemd

/// Who has an allowance of journal entries of its own.
@Suite final class FloodLimitTests {
  private let now = ContinuousClock.now
  private var limit = FloodLimit()

  private func passes(_ fields: Journal.Field...) -> Bool {
    limit.admit(Journal.Entry(.limitReached, .warning, "x", fields), at: now) == .pass
  }

  @Test func usersTakeNoAllowanceOfStreamsOrOfRoot() {
    for user in 0..<1000 as Range<UInt32> { _ = passes(.client(1), .uid(100_000 + user)) }
    for stream in 0..<FloodLimit.subjectLimit - FloodLimit.userLimit {
      #expect(passes(.stream("s\(stream)")))
    }
    #expect(passes(.client(2), .uid(0)))
    #expect(passes())
  }

  @Test func clientsWithoutAUserShareOneAllowance() {
    let passed = (0..<1000).filter { passes(.client($0), .stream("s\($0)")) }
    #expect(passed.count == FloodLimit.burst)
    #expect(passes() && passes(.client(1), .token("a")) && passes(.stream("s1")))
  }
}
