import Glibc

// Counts what values and subscriptions cost the allocator, and ends badly where that is more than allowed. To be built
// for release: a debug build allocates where the optimiser does not. Run by deploy/test.

checkStages()
checkFolds()
checkJunctions()
checkSharing()
checkSequence()
checkSubscriptions()
checkEndInsideAValue()
print(failures == 0 ? "no value costs an allocation" : "\(failures) over what is allowed")
exit(failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE)
