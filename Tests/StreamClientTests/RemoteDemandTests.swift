import Testing

@testable import StreamClient

@Suite struct RemoteDemandTests {
  @Test func finiteDemandStaysBelowUnlimited() {  // SEMANTICS 15
    var demand = RemoteDemand()
    demand.add(.max(Int.max))
    #expect(demand.takeGrant() == 0x7fff_fffe)
    #expect(demand.takeGrant() == 0)
    demand.spend()
    demand.spend()
    #expect(demand.takeGrant() == 2)
  }

  @Test func unlimitedDemandIsSentOnceAndIsPermanent() {
    var demand = RemoteDemand()
    demand.add(.max(3))
    #expect(demand.takeGrant() == 3)
    demand.add(.unlimited)
    #expect(demand.takeGrant() == 0x7fff_ffff)
    demand.spend()
    demand.add(.max(1))
    demand.add(.unlimited)
    #expect(demand.takeGrant() == 0)
  }
}
