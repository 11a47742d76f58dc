import Glibc
import StreamRuntime
import Synchronization

private let count = Atomic(0)

/// An address of this machine that no other test uses: all of 127.0.0.0/8 are its own. A daemon that listens on all
/// addresses has another port.
public func uniqueAddress() -> InternetAddress {
  let number = count.add(1, ordering: .relaxed).newValue + Int(getpid()) << 7
  guard
    let address = InternetAddress("127.\(1 + number >> 15 & 0x7f).\(number >> 7 & 0xff).\(1 + number & 0x7f):27878")
  else { preconditionFailure("not an address") }
  return address
}
