import Testing

@testable import StreamSources

private final class Member {}

/// A budget and its actions in short form, members by number.
private struct Bench {
  var budget: HostBudget<Member>
  let members = (0..<9).map { _ in Member() }

  init(places: Int) { budget = HostBudget(places: places) }

  mutating func join(_ numbers: Int...) {
    for number in numbers { budget.join(members[number]) }
  }

  mutating func leave(_ number: Int) { budget.leave(members[number]) }

  /// The members that start at `now`, then the remaining action.
  mutating func next(at now: Duration = .zero) -> String {
    var words: [String] = []
    while true {
      switch budget.next(at: now) {
      case .start(let member): words.append("\(members.firstIndex { $0 === member } ?? -1)")
      case .wait(let time): return (words + ["until \(time)"]).joined(separator: " ")
      case .rest: return words.joined(separator: " ")
      }
    }
  }
}

@Suite struct HostBudgetTests {
  @Test func noTransferStartsBeyondThePlaces() {
    var bench = Bench(places: 2)
    bench.join(0, 1, 2, 3)
    #expect(bench.next() == "0 1")
    #expect(bench.next() == "")
    bench.budget.free()
    #expect(bench.next() == "2")
    bench.budget.free()
    bench.budget.free()
    #expect(bench.next() == "3")
    #expect(!bench.budget.isEmpty)
    bench.budget.free()
    #expect(bench.budget.isEmpty)
  }

  @Test func aNewNumberOfPlacesAppliesToLaterStarts() {
    var bench = Bench(places: 1)
    bench.join(0, 1, 2, 3)
    #expect(bench.next() == "0")
    bench.budget.places = 3
    #expect(bench.next() == "1 2")
    bench.budget.places = 1
    for _ in 0..<2 { bench.budget.free() }
    #expect(bench.next() == "")
    bench.budget.free()
    #expect(bench.next() == "3")
  }

  @Test func transfersStartInTheOrderOfJoining() {
    var bench = Bench(places: 1)
    bench.join(0, 1, 2)
    var order = [bench.next()]
    bench.join(0)
    for _ in 0..<3 {
      bench.budget.free()
      order.append(bench.next())
    }
    #expect(order == ["0", "1", "2", "0"])
  }

  @Test func aTransferThatLeavesTheQueueIsSkipped() {
    var bench = Bench(places: 1)
    bench.join(0, 1, 2)
    bench.leave(1)
    bench.leave(7)
    #expect(bench.next() == "0")
    bench.budget.free()
    #expect(bench.next() == "2")
  }

  @Test func duringRetryAfterNoTransferStarts() {
    var bench = Bench(places: 2)
    bench.join(0)
    #expect(bench.next() == "0")
    bench.budget.rest(until: .seconds(10))
    bench.join(1)
    #expect(bench.next(at: .seconds(1)) == "until 10.0 seconds")
    bench.budget.free()
    #expect(bench.next(at: .seconds(9.9)) == "until 10.0 seconds")
    #expect(bench.next(at: .seconds(10)) == "1")
  }

  @Test func theLatestRetryAfterApplies() {
    var bench = Bench(places: 1)
    bench.join(0)
    bench.budget.rest(until: .seconds(10))
    bench.budget.rest(until: .seconds(5))
    #expect(bench.next(at: .seconds(6)) == "until 10.0 seconds")
    bench.budget.rest(until: .seconds(20))
    #expect(bench.next(at: .seconds(10)) == "until 20.0 seconds")
  }

  @Test func aRateLimitHoldsTheMembersOfItsAccountAlone() {
    var bench = Bench(places: 2)
    bench.budget.rest(until: .seconds(9), of: "a")
    bench.budget.rest(until: .seconds(5), of: "a")
    for (number, account) in [(0, "a"), (1, "b"), (2, "a"), (3, "b")] {
      bench.budget.join(bench.members[number], of: account)
    }
    #expect(bench.next(at: .seconds(8)) == "1 3")
    bench.budget.free()
    bench.budget.free()
    #expect(bench.next(at: .seconds(8)) == "until 9.0 seconds")
    bench.budget.rest(until: .seconds(12))
    #expect(bench.next(at: .seconds(10)) == "until 12.0 seconds")
    #expect(bench.next(at: .seconds(12)) == "0 2")
    bench.budget.rest(until: .seconds(99), of: "a")
    #expect(!bench.budget.isEmpty, "the limit must be remembered")
    bench.budget.endRest()
    bench.join(4)
    bench.budget.free()
    #expect(bench.next(at: .seconds(12)) == "4")
  }
}
