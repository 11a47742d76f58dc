import Testing

@testable import StreamServer

/// Which streams of a template exist, and who may make another one.
@Suite struct MadeStreamsTests {
  private let alice = ClientUser.uid(1000)
  private let bob = ClientUser.uid(1001)
  private let root = ClientUser.uid(0)

  private func host(_ number: UInt32) -> ClientUser { .ipv4(number) }

  /// Streams of which some are in use; the others since the time at which they were made.
  private struct World {
    var streams: MadeStreams
    var inUse: Set<String> = []
    var ends: [String: UInt64] = [:]
    var now: UInt64 = 1

    init(limit: Int, forgetTime: UInt64? = 100) { streams = MadeStreams(limit: limit, forgetTime: forgetTime) }

    func use(_ name: String) -> MadeStreams.Use { inUse.contains(name) ? .inUse : .unused(since: ends[name] ?? 0) }

    mutating func admit(_ user: ClientUser) -> MadeStreams.Admission {
      var copy = streams
      defer { streams = copy }
      return copy.admit(user, use: use)
    }

    mutating func add(_ name: String, _ user: ClientUser?, inUse isUsed: Bool = false) {
      now += 1
      streams.add(name, by: user, at: now)
      ends[name] = now
      if isUsed { inUse.insert(name) }
    }

    mutating func end(_ name: String) {
      now += 1
      inUse.remove(name)
      ends[name] = now
      streams.release(name, at: now)
    }

    mutating func due() -> [String] {
      var copy = streams
      defer { streams = copy }
      return copy.due(at: now, atMost: 1000, use: use)
    }
  }

  @Test func formerUsesTakeNoMemory() {
    var world = World(limit: 10, forgetTime: 1)
    world.add("kept", alice, inUse: true)
    for index in 0..<10_000 {
      world.add("s\(index)", alice)
      world.now += 1
      for name in world.due() { world.streams.remove(name) }
    }
    #expect(world.streams.count == 1 && world.streams.entryCount < 300)
  }

  @Test func aUserHasAtMostAsManyAsAreFree() {
    var world = World(limit: 10)
    for index in 0..<5 {
      #expect(world.admit(alice) == .admitted)
      world.add("a\(index)", alice, inUse: true)
    }
    #expect(world.admit(alice) == .refused(.share(count: 5, isOfAllHosts: false)))
    #expect(world.admit(bob) == .admitted)
  }

  @Test func oneUserAtHisShareLosesHisOwnLongestUnusedOne() {
    var world = World(limit: 4)
    world.add("b0", bob)
    world.add("a0", alice)
    world.add("a1", alice)
    #expect(world.admit(alice) == .forgets("a0"))
    world.inUse.insert("a0")
    #expect(world.admit(alice) == .forgets("a1"))
    world.inUse.insert("a1")
    #expect(world.admit(alice) == .refused(.share(count: 2, isOfAllHosts: false)))
    world.end("a1")
    #expect(world.admit(alice) == .forgets("a1"))
  }

  @Test func atTheLimitTheLongestUnusedOfAllGoes() {
    var world = World(limit: 3)
    for (name, user) in [("r0", root), ("a0", alice), ("r1", root)] { world.add(name, user) }
    #expect(world.admit(bob) == .forgets("r0"))
    world.inUse = ["r0"]
    #expect(world.admit(bob) == .forgets("a0"))
    world.inUse = ["r0", "a0", "r1"]
    #expect(world.admit(bob) == .refused(.full))
    world.end("r1")
    #expect(world.admit(bob) == .forgets("r1"))
    world.streams.remove("r1")
    #expect(world.admit(bob) == .admitted)
  }

  @Test func rootHasNoShare() {
    var world = World(limit: 4)
    for index in 0..<4 {
      #expect(world.admit(root) == .admitted)
      world.add("r\(index)", root, inUse: true)
    }
    #expect(world.admit(root) == .refused(.full))
  }

  @Test func allHostsTogetherHaveTheShareOfOneUser() {
    var world = World(limit: 8)
    for index in 0..<4 as Range<UInt32> {
      #expect(world.admit(host(index)) == .admitted)
      world.add("h\(index)", host(index), inUse: true)
    }
    #expect(world.admit(host(9)) == .refused(.share(count: 4, isOfAllHosts: true)))
    #expect(world.admit(alice) == .admitted)
  }

  @Test func theTimeWithoutUseBeginsWithTheEndOfTheLastUse() {
    var world = World(limit: 9)
    world.add("x", alice)
    world.add("y", alice, inUse: true)
    world.now += 60
    world.inUse.insert("x")
    world.now += 60
    #expect(world.due() == [])
    world.end("x")
    world.now += 99
    #expect(world.due() == [])
    world.now += 1
    #expect(world.due() == ["x"])
    world.streams.remove("x")
    #expect(world.streams.nextDue == nil)
    world.end("y")
    #expect(world.streams.nextDue == world.now + 100)
  }

  @Test func withoutATimeNothingIsForgotten() {
    var world = World(limit: 1, forgetTime: nil)
    world.add("x", alice)
    world.now = 1 << 60
    #expect(world.due() == [] && world.streams.nextDue == nil)
    #expect(world.admit(root) == .forgets("x"))
  }

  @Test func aNameThatIsMadeAgainIsAnotherStream() {
    var world = World(limit: 9)
    world.add("x", alice)
    world.streams.remove("x")
    world.now += 90
    world.add("x", bob)
    world.now += 50
    #expect(world.due() == [] && world.streams.owner(of: "x") == bob && world.streams.count == 1)
  }

  /// A model that looks at all streams for each decision.
  @Test(arguments: 0..<40) func decisionsAreThoseOfASearchAmongAllStreams(seed: Int) {
    var random = SplitMix64(UInt64(seed))
    var world = World(limit: 12, forgetTime: 30)
    var owners: [String: ClientUser] = [:]
    func below(_ limit: Int) -> Int { Int.random(in: 0..<limit, using: &random) }
    let users = [alice, bob, root, host(1), host(2)]
    func unused(_ user: ClientUser?) -> String? {
      owners.filter { (user == nil || $0.value == user) && !world.inUse.contains($0.key) }
        .min { world.ends[$0.key] ?? 0 < world.ends[$1.key] ?? 0 }?.key
    }
    for step in 0..<600 {
      world.now += UInt64(below(6))
      switch below(4) {
      case 0:
        let user = users[below(users.count)]
        switch world.admit(user) {
        case .admitted:
          #expect(owners.count < 12)
          world.add("s\(step)", user, inUse: below(3) > 0)
          owners["s\(step)"] = user
        case .forgets(let name):
          #expect(name == unused(owners.count < 12 ? user : nil) || name == unused(user))
          world.streams.remove(name)
          owners[name] = nil
          world.inUse.remove(name)
        case .refused(.full): #expect(owners.count == 12 && unused(nil) == nil)
        case .refused(.share(let count, _)): #expect(unused(user) == nil && count > 0)
        }
      case 1: if let name = owners.keys.sorted().randomElement(using: &random) { world.inUse.insert(name) }
      case 2: if let name = world.inUse.sorted().randomElement(using: &random) { world.end(name) }
      default:
        let expected = owners.keys.filter { !world.inUse.contains($0) && (world.ends[$0] ?? 0) + 30 <= world.now }
        let due = world.due()
        #expect(Set(due) == Set(expected))
        for name in due {
          world.streams.remove(name)
          owners[name] = nil
        }
      }
      #expect(world.streams.count == owners.count)
    }
  }
}
