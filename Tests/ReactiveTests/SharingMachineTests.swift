import Testing

@testable import Reactive

@Suite struct SharingMachineTests {
  private struct Random: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
      state &+= 0x9e37_79b9_7f4a_7c15
      var word = (state ^ (state >> 30)) &* 0xbf58_476d_1ce4_e5b9
      word = (word ^ (word >> 27)) &* 0x94d0_49bb_1331_11eb
      return word ^ (word >> 31)
    }
  }

  static let logs: [(start: ShareStart, demand: UpstreamDemand, overflow: LogOverflow)] = [
    ShareStart.whileSubscribed(linger: .zero), .whileSubscribed(linger: .seconds(30)), .fromFirstSubscriber, .always,
  ].flatMap { start in
    [(start, .exact, .dropOldest), (start, .oneAtATime, .dropOldest), (start, .oneAtATime, .waitForSlowest)]
  }

  /// The initial states of all sequences of inputs: combinations of frozen, full, lingering, outstanding, ended and the
  /// number of subscribers.
  private static let beginnings: [[SharingModel.Input]] = [
    [],
    [.firstJoins],
    [.firstJoins, .secondJoins, .secondWantsThree],
    [.firstJoins, .valueArrives, .receiveReturns, .firstLeaves],
    [.firstJoins, .firstWantsAll, .largeValueArrives, .receiveReturns],
    [.firstJoins, .firstWantsAll, .largeValueArrives, .receiveReturns, .upstreamEnds],
    [.firstJoins, .firstWantsAll, .largeValueArrives, .receiveReturns, .freezes],
    [.firstJoins, .freezes, .valueArrives, .receiveReturns],
    [.firstJoins, .freezes, .valueArrives, .receiveReturns, .upstreamEnds],
    [.firstJoins, .firstLeaves, .freezesWaiting],
    [.firstJoins, .valueArrives],
    [.firstJoins, .upstreamEnds, .freezes, .upstreamIsReplaced],
  ]

  @Test(arguments: logs.indices) func everySequenceOfThreeInputsObeysTheRules(log: Int) {
    let (start, demand, overflow) = Self.logs[log]
    for beginning in Self.beginnings {
      var model = SharingModel(start, demand, overflow)
      for input in beginning {
        model.apply(input)
        model.performAll()
        model.checkAtRest()
      }
      #expect(model.violations == [], "\(start) \(demand) \(overflow): \(beginning)")
      if model.violations.isEmpty { explore(model, after: beginning, depth: 3) }
    }
  }

  private func explore(_ model: SharingModel, after path: [SharingModel.Input], depth: Int) {
    guard depth > 0 else { return }
    for input in SharingModel.Input.allCases {
      var next = model
      guard next.apply(input) else { continue }
      next.performAll()
      next.checkAtRest()
      guard next.violations.isEmpty else {
        Issue.record("\(model.start) \(model.demand): \(path + [input]): \(next.violations)")
        continue
      }
      explore(next, after: path + [input], depth: depth - 1)
    }
  }

  /// As on several threads: the actions of a step are performed some steps later, in any order. Each run has some of the
  /// inputs only, which reaches more than all of them do. Source: swarm testing (Groce and others, 2012).
  @Test(arguments: logs.indices) func reorderedStepsObeyTheRules(log: Int) {
    let (start, demand, overflow) = Self.logs[log]
    for seed in 0..<200 as Range<UInt64> {
      var random = Random(state: seed)
      var model = SharingModel(start, demand, overflow)
      let inputs =
        [.firstJoins, .valueArrives, .receiveReturns] + SharingModel.Input.allCases.shuffled(using: &random).prefix(8)
      var path: [String] = []
      for _ in 0..<120 where model.violations.isEmpty {
        if !model.effects.isEmpty, Bool.random(using: &random) {
          let index = Int.random(in: model.effects.indices, using: &random)
          path.append("\(model.effects[index])")
          model.perform(index)
        } else if let input = inputs.randomElement(using: &random),
          input != .shutsDown || Int.random(in: 0..<20, using: &random) == 0, model.apply(input)
        {
          path.append("\(input)")
        }
        if Int.random(in: 0..<8, using: &random) == 0 { model.performAll() }
        model.checkAtRest()
      }
      #expect(model.violations == [], "seed \(seed) of \(start) \(demand) \(overflow): \(path)")
    }
  }

  @Test(arguments: [false, true]) func whatIsRequestedAfterARetractionFollowsIt(isValueFirst: Bool) {
    var model = SharingModel(.whileSubscribed(linger: .zero), .oneAtATime, .dropOldest)
    model.apply(.firstJoins)
    model.performAll()
    model.apply(.firstWantsNothing)
    if isValueFirst { model.apply(.valueArrives) }
    model.perform(0)  // upstream acts later on the retraction
    if !isValueFirst { model.apply(.valueArrives) }
    model.apply(.firstWantsOne)
    model.apply(.receiveReturns)
    model.performAll()
    model.checkAtRest()
    #expect(model.violations == [])
  }

  @Test func valueWithoutElementsRequestsTheNext() {
    let probe = Probe<[Int], Never>()
    let (log, _) = SharedLog<Ring, Never>.connected(to: probe, .waitForSlowest)
    #expect(probe.send([]) == .max(1))
    #expect(probe.send([1]) == .max(1) && log.values == [1])
  }
}
