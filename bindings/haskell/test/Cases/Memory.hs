-- | Many green threads, and the garbage collector beside them.
module Cases.Memory (cases) where

import Control.Concurrent
import Control.Exception
import Control.Monad
import Data.IORef
import Data.Primitive.ByteArray
import qualified Data.Vector as V
import qualified Data.Vector.Unboxed as U
import Data.Word (Word8)
import Support
import System.IO.BlockIO
import System.Mem (performGC, performMajorGC)
import System.Posix.Types (Fd)

cases :: [Case]
cases =
  [ Case "a thousand green threads get their own blocks" manyThreads
  , Case "buffers survive collections during the reads" survivesCollections
  , Case "a batch holds what the program dropped" holdsWhatIsDropped
  , Case "results stay valid when the batch is garbage" resultsStay
  , Case "capabilities may be added later" capabilitiesAreAdded
  ]

together :: [IO ()] -> IO ()
together actions = do
  ends <- forM actions $ \action -> do
    end <- newEmptyMVar
    end <$ forkFinally action (putMVar end)
  forM_ ends (takeMVar >=> either throwIO pure)

manyThreads :: IO ()
manyThreads = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io ->
  together [replicateM_ 3 (readAndCheck io fd 4 n) | n <- [1 .. 1000]]

readAndCheck :: IOCtx -> Fd -> Int -> Int -> IO ()
readAndCheck io fd size seed = do
  buffer <- newPinnedByteArray (size * fileBlock)
  let blocks = take size (randoms seed fileBlocks)
  submitIO io (readBlocks fd buffer blocks) >>= checkBlocks buffer blocks

-- New buffers for each batch, while another thread collects without a pause.
survivesCollections :: IO ()
survivesCollections = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  ended <- newIORef False
  collected <- newEmptyMVar
  void (forkFinally (collect ended) (putMVar collected))
  together [forM_ [1 .. 30] (readAndCheck io fd 16 . (+ 100 * n)) | n <- [1 .. 16]]
    `finally` writeIORef ended True
  takeMVar collected >>= either throwIO pure
  where
    collect ended = do
      performMajorGC
      performGC
      yield
      done <- readIORef ended
      unless done (collect ended)

-- Nothing but the batch refers to the buffer of the writes, while other arrays are allocated.
holdsWhatIsDropped :: IO ()
holdsWhatIsDropped = withFileOf 0 (const 0) $ \fd -> withIOCtx slow $ \io -> replicateM_ 3 $ do
  end <- newEmptyMVar
  void (forkFinally (writeAll io fd) (putMVar end))
  collectUntil end
  takeMVar end >>= either throwIO (assertEqual "results" (replicate fileBlocks (IOResult 4096)) . U.toList)
  buffer <- newPinnedByteArray (fileBlocks * fileBlock)
  submitIO io (readBlocks fd buffer [0 .. fileBlocks - 1]) >>= checkBlocks buffer [0 .. fileBlocks - 1]
  where
    slow = defaultIOCtxParams {ioctxBatchSizeLimit = 1, ioctxConcurrencyLimit = 1}
    collectUntil end = do
      performMajorGC
      forM_ [fileBlocks * 64, fileBlocks * fileBlock, 4096, 64] $ \size -> do
        array <- newPinnedByteArray size
        setByteArray array 0 size (0x55 :: Word8)
      ended <- not <$> isEmptyMVar end
      unless ended (collectUntil end)

writeAll :: IOCtx -> Fd -> IO (U.Vector IOResult)
writeAll io fd = do
  buffer <- newPinnedByteArray (fileBlocks * fileBlock)
  forM_ [0 .. fileBlocks - 1] $ \n -> setByteArray buffer (n * fileBlock) fileBlock (blockByte n)
  submitIO io $ V.generate fileBlocks $ \n ->
    IOOpWrite fd (fromIntegral (n * fileBlock)) buffer (n * fileBlock) (fromIntegral fileBlock)
{-# NOINLINE writeAll #-}

resultsStay :: IO ()
resultsStay = withPatternFile $ \fd -> withIOCtx defaultIOCtxParams $ \io -> do
  kept <- forM [1 .. 200] $ \n -> do
    buffer <- newPinnedByteArray (4 * fileBlock)
    submitIO io (readBlocks fd buffer (n : take 2 (randoms n fileBlocks) ++ [fileBlocks]))
  performMajorGC
  garbage <- forM [1 .. 200 :: Int] $ \_ -> newPinnedByteArray 64 >>= \a -> a <$ setByteArray a 0 64 (0x55 :: Word8)
  assertEqual "arrays" 200 (length garbage)
  forM_ kept $ assertEqual "results" [IOResult 4096, IOResult 4096, IOResult 4096, IOResult 0] . U.toList

capabilitiesAreAdded :: IO ()
capabilitiesAreAdded = do
  capabilities <- getNumCapabilities
  flip finally (setNumCapabilities capabilities) $ withPatternFile $ \fd -> do
    setNumCapabilities 1
    withIOCtx defaultIOCtxParams $ \io -> do
      setNumCapabilities 3
      together [submitOn io fd capability | capability <- [0 .. 5]]
  where
    submitOn io fd n = do
      end <- newEmptyMVar
      buffer <- newPinnedByteArray (4 * fileBlock)
      let blocks = take 4 (randoms n fileBlocks)
      void (forkOn n (try (submitIO io (readBlocks fd buffer blocks)) >>= putMVar end))
      takeMVar end >>= either (throwIO :: SomeException -> IO a) (checkBlocks buffer blocks)
