import Reactive

/// A subscriber's demand, and the part of it that was granted to the server.
///
/// On the wire 2^31-1 means unlimited, so a finite grant stays below it; the excess waits here.
struct RemoteDemand {
  private var unsent = Subscribers.Demand.none
  private var outstanding: UInt32 = 0
  private var isUnlimited = false

  private static let unlimited: UInt32 = 0x7fff_ffff

  mutating func add(_ demand: Subscribers.Demand) {
    unsent += demand
  }

  /// Counts one received value.
  mutating func spend() {
    if !isUnlimited, outstanding > 0 { outstanding -= 1 }
  }

  /// Takes back the unmet grant after the connection ended, so that it can be granted again.
  mutating func takeBack() {
    unsent += isUnlimited ? .unlimited : .max(Int(outstanding))
    outstanding = 0
    isUnlimited = false
  }

  /// Whether ``takeGrant()`` would return more than 0.
  var hasGrant: Bool { !isUnlimited && unsent > .none && outstanding < Self.unlimited - 1 }

  /// Returns the credit to grant the server now; 0 for none.
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
