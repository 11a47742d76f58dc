import Glibc
import RSocket
import Testing

@testable import StreamServer

@Suite struct AccessTests {
  private let peer = PeerCredentials(process: 1, user: 1000, group: 1000)

  @Test func aRuleAdmitsExactlyTheNamedUsersAndGroups() {
    #expect(AccessRules([.anyone]).admit(nil, groups: { [] }))
    #expect(!AccessRules([.user(1000)]).admit(nil, groups: { [] }))
    #expect(!AccessRules([]).admit(peer, groups: { [] }))
    #expect(AccessRules([.user(1000)]).admit(peer, groups: { [] }))
    #expect(!AccessRules([.user(0)]).admit(peer, groups: { [0] }))
    #expect(AccessRules([.group(1000)]).admit(peer, groups: { [] }))
    #expect(AccessRules([.user(1), .group(27)]).admit(peer, groups: { [4, 27] }))
    #expect(!AccessRules([.group(27)]).admit(peer, groups: { [4] }))
  }

  @Test func groupsAreNotLookedUpWithoutARuleThatNeedsThem() {
    var lookups = 0
    _ = AccessRules([.user(1)]).admit(
      peer,
      groups: {
        lookups += 1; return []
      })
    _ = AccessRules([.anyone, .group(3)]).admit(
      peer,
      groups: {
        lookups += 1; return []
      })
    #expect(lookups == 0)
  }

  @Test func theClientsUserIsReportedByTheKernel() async throws {
    try await withServer { harness in
      _ = try harness.add("mine") { $0.read = AccessRules([.user(getuid())]) }
      _ = try harness.add("my-group") { $0.read = AccessRules([.group(getgid())]) }
      _ = try harness.add("theirs") { $0.read = AccessRules([.user(4_000_000), .group(4_000_000)]) }
      let client = try WireClient.ready(harness.path)
      for (id, name) in [(1, "mine"), (3, "my-group")] as [(UInt32, String)] {
        client.subscribe(name, credit: 1, id: id)
      }
      #expect(try client.isSilent())
      client.subscribe("theirs", credit: 1, id: 5)
      #expect(try client.receive() == .error(StreamID(5), .rejected, "uid \(getuid()) may not read \"theirs\""))
      client.get("theirs", id: 7)
      #expect(try client.receive() == .error(StreamID(7), .rejected, "uid \(getuid()) may not read \"theirs\""))
      #expect(harness.server.statistics.refused == 2)
      guard case .clientRefused(let who, stream: "theirs", _)? = harness.reports.first else {
        Issue.record("not reported: \(harness.reports)")
        return
      }
      #expect(who.credentials?.user == getuid())
      #expect(who.credentials?.process == getpid())
    }
  }
}
