import EventLoop
import Glibc
import Testing

@Suite struct DescriptorParcelTests {
  /// Files without names, each with its number in it.
  private func files(_ count: Int) -> [CInt] {
    (0..<count).map { number in
      var pair: [CInt] = [-1, -1]
      pipe(&pair)
      var bytes = number
      write(pair[1], &bytes, MemoryLayout<Int>.size)
      close(pair[1])
      return pair[0]
    }
  }

  private func numbers(_ descriptors: [CInt]) -> [Int] {
    descriptors.map { descriptor in
      var number = -1
      read(descriptor, &number, MemoryLayout<Int>.size)
      close(descriptor)
      return number
    }
  }

  @Test(arguments: [0, 1, 253, 254, 600]) func whatIsPackedComesOutInOrder(count: Int) throws {
    let files = files(count)
    let (ends, packed) = try DescriptorParcel.pack(files)
    for file in files { close(file) }
    #expect(packed == count && (ends.isEmpty == (count == 0)))
    #expect(numbers(ends.flatMap(DescriptorParcel.unpack)) == Array(0..<count))
    for end in ends {
      #expect(DescriptorParcel.unpack(end).isEmpty)
      close(end)
    }
  }

  @Test func whatNobodyTakesOutIsClosedWithTheParcel() throws {
    var pair: [CInt] = [-1, -1]
    socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &pair)
    let (ends, _) = try DescriptorParcel.pack([pair[0]])
    close(pair[0])
    #expect(send(pair[1], "x", 1, CInt(MSG_NOSIGNAL)) == 1)
    for end in ends { close(end) }
    var byte: UInt8 = 0
    #expect(recv(pair[1], &byte, 1, 0) <= 0)
    close(pair[1])
  }

  @Test func aSocketThatIsNoParcelIsEmpty() {
    var pair: [CInt] = [-1, -1]
    socketpair(AF_UNIX, CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue), 0, &pair)
    send(pair[1], "x", 1, 0)
    #expect(DescriptorParcel.unpack(pair[0]).isEmpty)
    for end in pair { close(end) }
  }
}
