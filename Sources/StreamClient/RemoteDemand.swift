import Reactive

/// What a subscriber has asked for, and how much of that the server knows.
///
/// On the wire 2^31-1 means without limit, so a finite demand stays below it, and what is over waits here.
struct RemoteDemand {
  private var unsent = Subscribers.Demand.none
  private var outstanding: UInt32 = 0
  private var isUnlimited = false

  private static let unlimited: UInt32 = 0x7fff_ffff

  mutating func add(_ demand: Subscribers.Demand) {
    unsent += demand
  }

  /// One value has come.
  mutating func spend() {
    if !isUnlimited, outstanding > 0 { outstanding -= 1 }
  }

  /// The server that knew of it is gone: what it has not met is there to be granted again.
  mutating func takeBack() {
    unsent += isUnlimited ? .unlimited : .max(Int(outstanding))
    outstanding = 0
    isUnlimited = false
  }

  /// Whether ``takeGrant()`` would return more than 0.
  var hasGrant: Bool { !isUnlimited && unsent > .none && outstanding < Self.unlimited - 1 }

  /// What to tell the server now; 0 for nothing.
  mutating func takeGrant() -> UInt32 {
    guard hasGrant else { return 0 }
    guard let wanted = unsent.max else {
      isUnlimited = true
      return Self.unlimited
    }
    let grant = UInt32(min(wanted, Int(Self.unlimited - 1 - outstanding)))
    unsent -= Int(grant)
    outstanding += grant
    return grant
  }
}
