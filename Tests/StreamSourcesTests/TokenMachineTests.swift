import Testing

@testable import StreamSources

/// What a request gets, and what is done.
private struct Reply: Equatable {
  let answer: TokenMachine.Answer
  let action: TokenMachine.Action

  init(_ answer: TokenMachine.Answer, _ action: TokenMachine.Action) { (self.answer, self.action) = (answer, action) }
}

extension TokenMachine {
  fileprivate mutating func asked(at now: Duration) -> Reply {
    let (answer, action) = ask(at: now)
    return Reply(answer, action)
  }
}

@Suite struct TokenMachineTests {
  private func machine(_ refreshToken: String? = nil) -> TokenMachine {
    TokenMachine(refreshToken: refreshToken, seed: 1)
  }

  private func grant(_ token: String, _ seconds: Double? = 100, refresh: String? = nil) -> TokenGrant {
    TokenGrant(accessToken: token, lifetime: seconds.map { .seconds($0) }, refreshToken: refresh)
  }

  @Test func aTokenIsFetchedOnceAndRenewedAtFourFifthsOfItsTime() {
    var machine = machine()
    #expect(machine.asked(at: .zero) == Reply(.wait, .fetch(refreshToken: nil)))
    #expect(machine.asked(at: .zero) == Reply(.wait, .none))
    #expect(machine.granted(grant("a"), at: .zero) == .none)
    #expect(machine.asked(at: .seconds(79)) == Reply(.token("a"), .none))
    // The former token is valid until its end.
    #expect(machine.asked(at: .seconds(80)) == Reply(.token("a"), .fetch(refreshToken: nil)))
    #expect(machine.asked(at: .seconds(99)) == Reply(.token("a"), .none))
    #expect(machine.asked(at: .seconds(100)) == Reply(.wait, .none))
    #expect(machine.granted(grant("b", nil), at: .seconds(100)) == .none)
    #expect(machine.asked(at: .seconds(100 + 2879)) == Reply(.token("b"), .none))
    #expect(machine.asked(at: .seconds(100 + 2880)) == Reply(.token("b"), .fetch(refreshToken: nil)))
  }

  @Test(arguments: [-1e9, 0, 1, 1e12, .infinity]) func anyTimeOfATokenIsBounded(seconds: Double) {
    var machine = machine()
    _ = machine.ask(at: .zero)
    _ = machine.granted(grant("a", seconds.isFinite ? seconds : 1e9), at: .zero)
    #expect(machine.asked(at: .seconds(7)) == Reply(.token("a"), .none))
    #expect(machine.asked(at: .seconds(86_400 * 366)).answer == .wait)
  }

  @Test func aFailureHoldsUntilThePauseIsOver() {
    var machine = machine()
    let down = SourceFailure("down")
    var now = Duration.zero
    var fetches = 0
    // For a day, a request each second.
    for _ in 0..<86_400 {
      switch machine.ask(at: now) {
      case (.wait, .fetch):
        fetches += 1
        machine.failed(down, at: now)
        #expect(machine.asked(at: now) == Reply(.failed(down), .none))
      case (.failed(let reason), .none): #expect(reason == down)
      case let other: Issue.record("\(other)")
      }
      now += .seconds(1)
    }
    #expect((280...600).contains(fetches))
    // A token that is still valid is used meanwhile.
    now += .seconds(300)
    _ = machine.ask(at: now)
    _ = machine.granted(grant("a"), at: now)
    #expect(machine.asked(at: now + .seconds(80)) == Reply(.token("a"), .fetch(refreshToken: nil)))
    machine.failed(down, at: now + .seconds(80))
    #expect(machine.asked(at: now + .seconds(80)) == Reply(.token("a"), .none))
    #expect(machine.asked(at: now + .seconds(90)) == Reply(.token("a"), .fetch(refreshToken: nil)))
  }

  @Test func aRefusedTokenIsRenewedOnceUntilOneIsAccepted() {
    var machine = machine()
    func renew(_ token: String) {
      #expect(machine.asked(at: .zero) == Reply(.wait, .fetch(refreshToken: nil)))
      _ = machine.granted(grant(token), at: .zero)
    }
    renew("a")
    let isRenewed1 = machine.refused("a")
    #expect(isRenewed1)
    renew("b")
    let isRenewed2 = machine.refused("a")
    #expect(isRenewed2, "another request has it already")
    let isRenewed3 = machine.refused("b")
    #expect(!isRenewed3)
    #expect(machine.asked(at: .zero) == Reply(.token("b"), .none))
    machine.accepted("a")
    let isRenewed4 = machine.refused("b")
    #expect(!isRenewed4)
    machine.accepted("b")
    let isRenewed5 = machine.refused("b")
    #expect(isRenewed5)
    renew("c")
  }

  @Test func aReplacedRefreshTokenIsStoredBeforeItsTokenIsUsed() {
    var machine = machine("r1")
    let full = SourceFailure("full")
    #expect(machine.asked(at: .zero) == Reply(.wait, .fetch(refreshToken: "r1")))
    #expect(machine.granted(grant("a", refresh: "r1"), at: .zero) == .none, "it is the same")
    let isRenewed6 = machine.refused("a")
    #expect(isRenewed6)
    _ = machine.ask(at: .zero)
    #expect(machine.granted(grant("b", refresh: "r2"), at: .zero) == .store(refreshToken: "r2"))
    #expect(machine.asked(at: .zero) == Reply(.wait, .none))
    machine.stored(full, at: .zero)
    #expect(machine.asked(at: .zero) == Reply(.failed(full), .none))
    // The former one may be invalid: only the storing is repeated.
    #expect(machine.asked(at: .seconds(10)) == Reply(.wait, .store(refreshToken: "r2")))
    machine.stored(nil, at: .seconds(10))
    #expect(machine.asked(at: .seconds(10)) == Reply(.token("b"), .none))
    #expect(machine.asked(at: .seconds(95)) == Reply(.token("b"), .fetch(refreshToken: "r2")))
  }

  @Test func aRefreshTokenThatNobodyAskedForIsIgnored() {
    var machine = machine()
    _ = machine.ask(at: .zero)
    #expect(machine.granted(grant("a", refresh: "r"), at: .zero) == .none)
    #expect(machine.asked(at: .zero) == Reply(.token("a"), .none))
  }

  @Test func noOrderOfEventsUsesATokenBeforeItsRefreshTokenIsStored() {
    var random = SplitMix(seed: 7)
    for _ in 0..<200 {
      var machine = machine("r0")
      var (now, number, stored, pending) = (Duration.zero, 0, "r0", TokenMachine.Action.none)
      for _ in 0..<200 {
        now += .seconds(random.fraction() * 40)
        let choice = random.fraction()
        switch pending {
        case .none:
          let (answer, action) = machine.ask(at: now)
          pending = action
          if case .token(let token) = answer {
            // Each token has the number of its refresh token.
            #expect(token.dropFirst() == stored.dropFirst())
            if choice < 0.2 { _ = machine.refused(token) } else if choice < 0.5 { machine.accepted(token) }
          }
        case .fetch(let refreshToken):
          #expect(refreshToken == "r\(number)" && stored == refreshToken, "only a stored one is sent")
          pending = .none
          if choice < 0.3 {
            machine.failed(SourceFailure("down"), at: now)
          } else {
            number += 1
            pending = machine.granted(grant("t\(number)", 50, refresh: "r\(number)"), at: now)
          }
        case .store(let refreshToken):
          #expect(refreshToken == "r\(number)")
          pending = .none
          if choice < 0.5 {
            machine.stored(SourceFailure("full"), at: now)
          } else {
            stored = refreshToken
            machine.stored(nil, at: now)
          }
        }
      }
    }
  }

  @Test(arguments: [
    (#"{"access_token":"a","expires_in":3599.5}"#, TokenGrant(accessToken: "a", lifetime: .milliseconds(3_599_500))),
    (
      #"{"access_token":"a","token_type":"BEARER","expires_in":"60"}"#,
      TokenGrant(accessToken: "a", lifetime: .seconds(60))
    ),
    (#"{"access_token":"a","expires_in":-5}"#, TokenGrant(accessToken: "a", lifetime: .zero)),
    (#"{"access_token":"a","expires_in":1e400}"#, TokenGrant(accessToken: "a")),
    (#"{"access_token":"a","expires_in":1e30}"#, TokenGrant(accessToken: "a", lifetime: .seconds(1_000_000_000))),
    (#"{"access_token":"a","expires_in":"soon"}"#, TokenGrant(accessToken: "a")),
    (#"{"access_token":"a","expires_in":"nan"}"#, TokenGrant(accessToken: "a")),
    (#"{"access_token":"a","refresh_token":"r"}"#, TokenGrant(accessToken: "a", refreshToken: "r")),
    (#"{"access_token":"a","refresh_token":""}"#, TokenGrant(accessToken: "a")),
  ])
  func aGrantIsReadAsServersWriteIt(text: String, grant: TokenGrant) throws {
    #expect(try TokenGrant(Array(text.utf8)) == grant)
  }

  @Test(arguments: [
    ("", "the answer has no access_token"), ("[]", "the answer has no access_token"),
    ("no", "the answer has no access_token"),
    (#"{"access_token":""}"#, "the answer has no access_token"),
    (#"{"access_token":{}}"#, "the answer has no access_token"),
    (#"{"access_token":"a\nb"}"#, "a token has a character that no token has"),
    (#"{"access_token":"a","refresh_token":"a\nb"}"#, "a token has a character that no token has"),
    (#"{"access_token":"é"}"#, "a token has a character that no token has"),
    (#"{"access_token":"a","token_type":"mac"}"#, "the token is no bearer token"),
  ])
  func anAnswerWithoutAUsableTokenIsAFailure(text: String, sentence: String) {
    #expect(throws: SourceFailure(sentence)) { try TokenGrant(Array(text.utf8)) }
  }

  @Test func aLongTokenIsAFailure() {
    let text = #"{"access_token":"\#(String(repeating: "a", count: 16385))"}"#
    #expect(throws: SourceFailure("a token is over 16 KiB")) { try TokenGrant(Array(text.utf8)) }
  }
}
