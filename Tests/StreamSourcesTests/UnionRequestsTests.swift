import StreamRuntime
import Testing

@testable import StreamSources

struct UnionRequestsTests {
  private let retry = Backoff(first: .seconds(10), max: .seconds(40))
  private let now = Duration.seconds(1000)

  private func requests(_ count: Int, most: Int) -> UnionRequests {
    var requests = UnionRequests(most: most, retry: retry, seed: 1)
    for number in 0..<count { requests.set(name(number), isWanted: true) }
    return requests
  }

  private func next(_ requests: inout UnionRequests) -> [String]? { requests.next(at: now) }

  private func name(_ number: Int) -> String { "v" + String(100_000 + number) }

  /// Runs a period against an upstream that refuses each request with a value of `bad`.
  private func period(
    _ requests: inout UnionRequests, refusing bad: Set<String> = [], at now: Duration
  ) -> (count: Int, answered: Set<String>, refused: [String]) {
    var (count, answered, refused) = (0, Set<String>(), [String]())
    while let values = requests.next(at: now) {
      count += 1
      if bad.isDisjoint(with: values) {
        answered.formUnion(requests.answered())
      } else if let refusal = requests.refused(at: now) {
        refused.append(refusal.value)
      }
    }
    return (count, answered, refused)
  }

  @Test(arguments: [(0, 0), (1, 1), (99, 1), (100, 1), (101, 2), (1000, 10)])
  func aPeriodHasOneRequestForEachShareOfTheValues(count: Int, expected: Int) {
    var requests = requests(count, most: 100)
    for _ in 0..<3 {
      let result = period(&requests, at: now)
      #expect(result.count == expected && result.answered.count == count)
    }
  }

  @Test func aValueWithoutDemandIsNotAskedFor() {
    var requests = requests(3, most: 100)
    requests.set(name(1), isWanted: false)
    #expect(next(&requests) == [name(0), name(2)])
    // Also if it lost the demand after the period began.
    var others = self.requests(3, most: 1)
    #expect(next(&others) == [name(0)])
    _ = others.answered()
    others.set(name(1), isWanted: false)
    #expect(next(&others) == [name(2)])
    _ = others.answered()
    #expect(!others.goesOn(at: now) && next(&others) == nil)
  }

  @Test func oneRefusedValueIsFoundInOnePeriodAndWaitsAlone() {
    for bad in [0, 37, 99] {
      var requests = requests(100, most: 100)
      let first = period(&requests, refusing: [name(bad)], at: now)
      #expect(first.refused == [name(bad)] && first.answered.count == 99)
      #expect(first.count <= 1 + 14)
      let second = period(&requests, refusing: [name(bad)], at: now + .seconds(1))
      #expect(second.count == 1 && second.answered.count == 99 && second.refused.isEmpty)
      let later = period(&requests, refusing: [name(bad)], at: now + .seconds(60))
      #expect(later.count == 2 && later.refused == [name(bad)])
      // Once the upstream has it, it is a value as others.
      let good = period(&requests, at: now + .seconds(600))
      #expect(good.answered.count == 100)
      let last = period(&requests, at: now + .seconds(601))
      #expect(last.count == 1)
    }
  }

  @Test func ifAllAreRefusedAPeriodHasNoMoreThanItsFurtherRequests() {
    var requests = requests(1000, most: 100)
    let all = Set((0..<1000).map(name))
    var refused: Set<String> = []
    for number in 0..<400 {
      let result = period(&requests, refusing: all, at: now + .seconds(45 * number))
      #expect(result.count <= (number == 0 ? 10 : 0) + 14)
      refused.formUnion(result.refused)
    }
    #expect(refused.count == 1000)
    #expect(!requests.hasAnswer)
  }

  @Test func aFailedRequestComesAgainAfterTheOthers() {
    var requests = requests(3, most: 1)
    #expect(next(&requests) == [name(0)])
    requests.failed()
    #expect(requests.goesOn(at: now))
    #expect(next(&requests) == [name(1)])
    _ = requests.answered()
    #expect(next(&requests) == [name(2)])
    _ = requests.answered()
    #expect(next(&requests) == [name(0)])
    _ = requests.answered()
    #expect(next(&requests) == nil)
  }

  @Test(arguments: 0..<200) func atRandomEachGoodValueIsAnsweredAndNoRequestIsTooLarge(seed: Int) {
    var random = SplitMix(seed: UInt64(seed))
    let most = Int.random(in: 1...20, using: &random)
    var requests = requests(0, most: most)
    var (wanted, bad) = (Set<String>(), Set<String>())
    var time = now
    for _ in 0..<200 {
      for _ in 0..<Int.random(in: 0...10, using: &random) {
        let value = name(Int.random(in: 0..<60, using: &random))
        let isWanted = Bool.random(using: &random)
        requests.set(value, isWanted: isWanted)
        if isWanted { wanted.insert(value) } else { wanted.remove(value) }
      }
      if Int.random(in: 0..<10, using: &random) == 0 {
        bad = Set((0..<Int.random(in: 0...3, using: &random)).map { _ in name(Int.random(in: 0..<60, using: &random)) })
      }
      var count = 0
      while let values = requests.next(at: time) {
        #expect(!values.isEmpty && values.count <= most && wanted.isSuperset(of: values))
        count += 1
        switch Int.random(in: 0..<20, using: &random) {
        case 0: requests.failed()
        case _ where bad.isDisjoint(with: values): _ = requests.answered()
        case _: _ = requests.refused(at: time)
        }
        if count > 200 { break }
      }
      time += .seconds(Int.random(in: 0...5, using: &random))
    }
    // With an upstream that is well, each value is answered once in a period, with as few requests as can be.
    time += .seconds(1000)
    _ = period(&requests, at: time)
    for _ in 0..<40 { _ = period(&requests, at: time + .seconds(1000)) }
    let last = period(&requests, at: time + .seconds(2000))
    #expect(last.answered == wanted && last.count == (wanted.count + most - 1) / most)
  }
}
